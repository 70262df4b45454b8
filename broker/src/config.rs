//! The broker's configuration: where it listens, where its data is, and Kafka's options.

pub(crate) mod describe;
mod kafka_names;
mod nearest;
mod options;
mod properties;
mod settings;
mod table;
mod topic;

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use self::options::Options;
pub(crate) use self::settings::Settings;
pub use table::{OPTIONS, OptionError, OptionKind, OptionRow};
pub(crate) use topic::TopicConfig;

/// The address of [`BrokerConfig::new`]: a free port on the loopback interface.
const LISTEN: &str = "127.0.0.1:0";

/// How a broker is to be started.
///
/// Without a data folder it keeps everything in memory.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    listen: String,
    data: Option<PathBuf>,
    options: Options,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl BrokerConfig {
    /// In memory, on a free port of the loopback interface, with Kafka's defaults.
    pub fn new() -> Self {
        Self { listen: LISTEN.to_owned(), data: None, options: Options::default() }
    }

    /// Listens on `HOST:PORT`; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    /// Keeps the data in this folder, which is created if it is not there.
    #[must_use]
    pub fn data_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Some(folder.into());
        self
    }

    /// Keeps everything in memory: the default.
    #[must_use]
    pub fn memory(mut self) -> Self {
        self.data = None;
        self
    }

    /// Sets an option by Kafka's name.
    ///
    /// An error for a name that is not in [`OPTIONS`], which tells the nearest one, and for a value
    /// that the option does not take.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, OptionError> {
        self.options.set(name, value)?;
        match name {
            "listeners" => address_of(value).clone_into(&mut self.listen),
            "log.dirs" => self.data = Some(PathBuf::from(value.trim())),
            _ => {}
        }
        Ok(self)
    }

    /// Sets the options of a file in Kafka's form, that of `java.util.Properties`.
    ///
    /// What is set later goes before it. An error that names every line which cannot be used.
    pub fn file(mut self, file: impl AsRef<Path>) -> Result<Self, OptionError> {
        let file = file.as_ref();
        let unusable = |reason| OptionError::File { file: file.to_owned(), reason };
        let bytes = read_bounded(file).map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| unusable(format!("it is not UTF-8: {error}")))?;
        let properties = properties::parse(&text).map_err(|error| unusable(error.to_string()))?;
        let mut wrong = Vec::new();
        for one in properties {
            match self.clone().set(&one.key, &one.value) {
                Ok(set) => self = set,
                Err(error) => wrong.push(format!("line {}: {error}", one.line)),
            }
        }
        if wrong.is_empty() { Ok(self) } else { Err(unusable(wrong.join("; "))) }
    }

    /// Whether nothing is kept.
    pub fn is_in_memory(&self) -> bool {
        self.data.is_none()
    }

    pub(crate) fn listen_address(&self) -> &str {
        &self.listen
    }

    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::from_options(&self.options)
    }
}

/// The most bytes of a file of options.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

fn read_bounded(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        let reason = format!("a file of options has at most {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// The address in `listeners`, without the listener's name.
fn address_of(listener: &str) -> &str {
    let listener = listener.trim();
    listener.split_once("://").map_or(listener, |(_, address)| address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_takes_its_own_defaults() {
        assert!(OPTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for row in OPTIONS {
            assert_eq!(row.read(row.default).as_deref(), Ok(row.default), "{}", row.name);
        }
    }

    #[test]
    fn unknown_option_names_the_nearest() {
        let error = BrokerConfig::new().set("num.partition", "3").expect_err("no such option");
        assert_eq!(
            error.to_string(),
            "unknown option \"num.partition\"; did you mean \"num.partitions\"?"
        );
    }

    #[test]
    fn option_that_only_kafka_has_is_told_apart_from_a_slip() {
        let error = BrokerConfig::new().set("log.cleaner.threads", "1").expect_err("not here");
        assert!(matches!(error, OptionError::NotHere { .. }), "{error}");
    }

    #[test]
    fn value_out_of_range_or_of_another_type_is_refused() {
        for (name, value) in [
            ("num.partitions", "0"),
            ("num.partitions", "many"),
            ("auto.create.topics.enable", "yes"),
            ("log.message.timestamp.type", "now"),
            ("log.segment.bytes", "1048575"),
            ("advertised.listeners", "nowhere"),
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("log.dirs", "/a,/b"),
            ("log.cleanup.policy", "delete,burn"),
        ] {
            let error = BrokerConfig::new().set(name, value).expect_err(name);
            assert!(matches!(error, OptionError::Value { .. }), "{error}");
        }
        assert!(BrokerConfig::new().set("log.segment.bytes", "1048576").is_ok());
    }

    #[test]
    fn a_file_sets_options_and_what_is_set_later_goes_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.properties");
        let text = "# ours\nnum.partitions = 3\nlisteners=PLAINTEXT://127.0.0.1:0\n\
                    message.max.bytes=\\\n  5000\nlog.dirs: /nowhere\n";
        fs::write(&file, text).unwrap();
        let config = BrokerConfig::new().file(&file).unwrap();
        assert_eq!(config.listen_address(), "127.0.0.1:0");
        assert_eq!(config.data(), Some(Path::new("/nowhere")));
        let settings = config.settings();
        assert_eq!(settings.num_partitions, 3);
        assert_eq!(settings.topic_default("max.message.bytes").as_deref(), Some("5000"));
        let config = config.set("num.partitions", "4").unwrap();
        assert_eq!(config.settings().num_partitions, 4);
    }

    #[test]
    fn every_line_of_a_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.properties");
        fs::write(&file, "num.partition=3\nnode.id=2\n\nsasl.jaas.config=x\nnode.id=two\n")
            .unwrap();
        let told = BrokerConfig::new().file(&file).expect_err("three wrong lines").to_string();
        assert!(told.contains("server.properties"), "{told}");
        assert!(told.contains("line 1: unknown option \"num.partition\"; did you mean"), "{told}");
        assert!(
            told.contains("line 4: \"sasl.jaas.config\" is an option of Apache Kafka"),
            "{told}"
        );
        assert!(told.contains("line 5: option \"node.id\" cannot be \"two\""), "{told}");
        for bytes in [&b"a=\\u12"[..], b"num.partitions=\xff", &vec![b'#'; 1024 * 1024 + 1]] {
            fs::write(&file, bytes).unwrap();
            let error = BrokerConfig::new().file(&file).expect_err("no such file");
            assert!(matches!(error, OptionError::File { .. }), "{error}");
        }
        assert!(BrokerConfig::new().file(dir.path().join("none")).is_err());
    }
}
