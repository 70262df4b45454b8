//! `cargo xtask interop partitioners`: where others' clients put keys, asked of these themselves.
//!
//! The programs in `interop/partitioners` answer for Apache Kafka, librdkafka and Sarama; a test of
//! the client reads the committed answers. Here they are asked anew, or compared with what they say.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::outcome::{Count, Done};
use crate::process::Run;
use crate::tools::{self, GO, JDK};
use crate::workspace::{Workspace, fresh_dir, read, write};

use super::confluent;
use super::kafka::Kafka;

/// Where the answers stand, from the workspace's root.
const COMMITTED: &str = "conformance/partitioners";
/// Where the programs stand.
const PROGRAMS: &str = "interop/partitioners";
/// Numbers of partitions that are asked about; the last one shows nearly all of a hash.
const COUNTS: &str = "3,12,1000,2147483647";
/// Keys that are asked about.
const KEYS: usize = 1_200;

/// One of others' clients.
struct Other {
    /// The file of its answers.
    file: &'static str,
    name: &'static str,
    ask: fn(&Workspace, &Path, &Path) -> Done<Vec<String>>,
}

const OTHERS: [Other; 3] = [
    Other { file: "kafka.txt", name: "Apache Kafka 4.4.0", ask: kafka },
    Other { file: "librdkafka.txt", name: "librdkafka 2.16.1", ask: librdkafka },
    Other { file: "sarama.txt", name: "Sarama 1.61.1", ask: sarama },
];

/// Writes the committed answers anew.
pub(crate) fn renew(workspace: &Workspace) -> Done<Count> {
    let mut total = Count::default();
    for (other, text) in OTHERS.iter().zip(answers(workspace)?) {
        write(&workspace.root.join(COMMITTED).join(other.file), &text)?;
        total.passed += rows(&text);
    }
    Ok(total)
}

/// Fails unless the committed answers are what others' clients say.
pub(super) fn check(workspace: &Workspace) -> Done<Count> {
    let mut total = Count::default();
    for (other, text) in OTHERS.iter().zip(answers(workspace)?) {
        if read(&workspace.root.join(COMMITTED).join(other.file)).is_ok_and(|known| known == text) {
            total.passed += rows(&text);
        } else {
            println!("FAILED  {COMMITTED}/{} is not what {} says", other.file, other.name);
            total.failed += 1;
        }
    }
    Ok(total)
}

fn rows(text: &str) -> u64 {
    text.lines().map(|line| u64::from(!line.starts_with('#'))).sum()
}

/// The text of each file.
fn answers(workspace: &Workspace) -> Done<Vec<String>> {
    let scratch = workspace.scratch("partitioners")?;
    let asked = scratch.path().join("keys.txt");
    write(&asked, keys().join("\n") + "\n")?;
    let ask = |other: &Other| {
        let rows = (other.ask)(workspace, scratch.path(), &asked)?;
        Ok(format!(
            "# Said by {} through cargo xtask interop partitioners.\n\
             # rule, key, hash, and the partition among {COUNTS}\n{}\n",
            other.name,
            rows.join("\n")
        ))
    };
    OTHERS.iter().map(ask).collect()
}

fn kafka(workspace: &Workspace, scratch: &Path, keys: &Path) -> Done<Vec<String>> {
    tools::need(&[&JDK])?;
    let jars = Kafka::fetch_jars(workspace)?.join("*");
    let classes = scratch.join("classes");
    fresh_dir(&classes)?;
    let source = program(workspace, "Partitioners.java");
    let compile = Run::new("javac").args(["-encoding", "UTF-8", "-d"]).arg(&classes);
    compile.arg("-cp").arg(&jars).arg(source).quiet().check()?;
    let mut path = classes.into_os_string();
    path.push(":");
    path.push(&jars);
    Run::new("java").arg("-cp").arg(path).arg("Partitioners").arg(keys).arg(COUNTS).quiet().check()
}

fn librdkafka(workspace: &Workspace, _: &Path, keys: &Path) -> Done<Vec<String>> {
    let venv = confluent::environment(workspace)?;
    let script = venv.run("python").arg(program(workspace, "librdkafka.py"));
    script.arg(keys).arg(COUNTS).quiet().check()
}

fn sarama(workspace: &Workspace, scratch: &Path, keys: &Path) -> Done<Vec<String>> {
    tools::need(&[&GO])?;
    let built = scratch.join("sarama");
    let dir = program(workspace, "sarama");
    Run::new("go").args(["build", "-o"]).arg(&built).arg(".").dir(&dir).quiet().check()?;
    Run::new(&built).arg(keys).arg(COUNTS).quiet().check()
}

fn program(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.root.join(PROGRAMS).join(name)
}

/// Keys in hexadecimal: words, numbers, all lengths to 64, and those whose hash is all sign.
fn keys() -> Vec<String> {
    let mut keys: Vec<Vec<u8>> = ["", "21", "abc", "kafka", "d26skop", "qqk42v", "straße", "鍵"]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
    keys.extend((0..256_u16).map(|byte| byte.to_le_bytes()[..1].to_vec()));
    keys.extend((0..200).map(|number: u32| format!("order-{number}").into_bytes()));
    keys.extend((0..200_u64).map(|number| (number * 0x0101_0101_0101).to_be_bytes().to_vec()));
    let mut state = 1_u64;
    while keys.len() < KEYS {
        let mut key = Vec::new();
        let len = 2 + keys.len() % 63;
        for _ in 0..len {
            // A linear congruence, of which the highest bits are the least regular.
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            key.push(state.to_be_bytes()[0]);
        }
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.iter().map(|key| hex(key)).collect()
}

fn hex(key: &[u8]) -> String {
    if key.is_empty() {
        return "-".to_owned();
    }
    let mut text = String::new();
    for byte in key {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}
