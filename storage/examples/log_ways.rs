//! Ways to write a log's bytes, and to send them to a socket, timed; `cargo xtask bench log` runs it.
//!
//! Takes a folder to write in. Prints a line for each run of each way, with tabs in between: `write`
//! or `send`, the way, MiB a second, and the CPU of its thread in µs for each MiB. The ways take
//! turns, so that what else the machine does falls on all of them.
#![allow(clippy::print_stdout, reason = "a program's output")]
#![allow(clippy::disallowed_methods, reason = "it times")]
#![allow(unsafe_code, reason = "one of the ways writes through a map of a file")]

use std::error::Error;
use std::fs::{self, File as StdFile, OpenOptions};
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use ottla_storage::{DiskFiles, Files, OpenMode};
use rustix::fs::sendfile;
use rustix::time::{ClockId, clock_gettime};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const TOTAL: usize = 256 * MIB;
const RUNS: usize = 9;

/// How bytes come into the file.
#[derive(Clone, Copy)]
enum Write {
    /// So many batches of a size by one call, as the broker's log does.
    Pwritev { batch: usize, batches: usize },
    /// Batches of a size are copied to a map of the file.
    Map { batch: usize },
}

/// How bytes come from the file, whose pages are in memory, to a socket on this machine.
#[derive(Clone, Copy)]
enum Send {
    /// Read to a buffer of ours and written from it.
    Copy(usize),
    /// By the kernel alone.
    Sendfile(usize),
}

const WRITES: [(&str, Write); 5] = [
    ("pwritev, 4 KiB a call", Write::Pwritev { batch: 4 * KIB, batches: 1 }),
    ("pwritev, 16 × 4 KiB a call", Write::Pwritev { batch: 4 * KIB, batches: 16 }),
    ("mapping, 4 KiB a copy", Write::Map { batch: 4 * KIB }),
    ("pwritev, 64 KiB a call", Write::Pwritev { batch: 64 * KIB, batches: 1 }),
    ("mapping, 64 KiB a copy", Write::Map { batch: 64 * KIB }),
];

const SENDS: [(&str, Send); 6] = [
    ("pread and write, 16 KiB", Send::Copy(16 * KIB)),
    ("sendfile, 16 KiB", Send::Sendfile(16 * KIB)),
    ("pread and write, 64 KiB", Send::Copy(64 * KIB)),
    ("sendfile, 64 KiB", Send::Sendfile(64 * KIB)),
    ("pread and write, 1 MiB", Send::Copy(MIB)),
    ("sendfile, 1 MiB", Send::Sendfile(MIB)),
];

fn main() -> Outcome {
    let dir = std::env::args_os().nth(1).ok_or("the folder to write in is missing")?;
    let path = Path::new(&dir).join("log_ways");
    for _ in 0..RUNS {
        for (name, way) in WRITES {
            show("write", name, write(&path, way)?);
        }
    }
    // What was written last is in memory, whole.
    for _ in 0..RUNS {
        for (name, way) in SENDS {
            show("send", name, send(&path, way)?);
        }
    }
    fs::remove_file(&path)?;
    Ok(())
}

/// What a run took.
struct Took {
    time: Duration,
    cpu: Duration,
}

fn show(what: &str, way: &str, took: Took) {
    let mib = f64::from(u32::try_from(TOTAL / MIB).unwrap_or(u32::MAX));
    let rate = mib / took.time.as_secs_f64();
    let cpu = took.cpu.as_secs_f64() * 1e6 / mib;
    println!("{what}\t{way}\t{rate:.1}\t{cpu:.1}");
}

fn timed(work: impl FnOnce() -> Outcome) -> Outcome<Took> {
    let (cpu, begin) = (cpu()?, Instant::now());
    work()?;
    Ok(Took { time: begin.elapsed(), cpu: self::cpu()?.saturating_sub(cpu) })
}

/// CPU that this thread has used, the kernel's on its behalf included.
fn cpu() -> Outcome<Duration> {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Ok(Duration::new(u64::try_from(used.tv_sec)?, u32::try_from(used.tv_nsec)?))
}

fn write(path: &Path, way: Write) -> Outcome<Took> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    let took = match way {
        Write::Pwritev { batch, batches } => by_pwritev(path, batch, batches),
        Write::Map { batch } => by_map(path, batch),
    }?;
    // Also what a map has not written yet is there to read.
    let mut last = [0; 1];
    let written = DiskFiles::new().open(path, OpenMode::Read)?;
    written.read_exact_at(&mut last, u64::try_from(TOTAL - 1)?)?;
    if last != [7] || written.len()? != u64::try_from(TOTAL)? {
        return Err("the file is not as it was written".into());
    }
    Ok(took)
}

fn by_pwritev(path: &Path, batch: usize, batches: usize) -> Outcome<Took> {
    let bytes = vec![7_u8; batch];
    let slices = vec![IoSlice::new(&bytes); batches];
    let file = DiskFiles::new().open(path, OpenMode::CreateNew)?;
    timed(|| {
        for at in (0..TOTAL).step_by(batch * batches) {
            file.write_at(&slices, u64::try_from(at)?)?;
        }
        Ok(())
    })
}

fn by_map(path: &Path, batch: usize) -> Outcome<Took> {
    let bytes = vec![7_u8; batch];
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    timed(|| {
        // Length and map are part of the way: a write by call needs neither.
        file.set_len(u64::try_from(TOTAL)?)?;
        // SAFETY: the file was made by us just now, in a folder that nobody else writes in, and is
        // not cut while the map lives.
        let mut map = unsafe { MmapMut::map_mut(&file)? };
        for part in map.chunks_exact_mut(batch) {
            part.copy_from_slice(&bytes);
        }
        Ok(())
    })
}

fn send(path: &Path, way: Send) -> Outcome<Took> {
    let file = StdFile::open(path)?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut out = TcpStream::connect(listener.local_addr()?)?;
    let (mut peer, _) = listener.accept()?;
    let taken = thread::spawn(move || {
        let mut buffer = vec![0; MIB];
        let mut taken = 0;
        loop {
            match peer.read(&mut buffer) {
                Ok(0) => return Ok(taken),
                Ok(read) => taken += read,
                Err(error) => return Err(error),
            }
        }
    });
    let took = timed(|| match way {
        Send::Copy(chunk) => by_copy(path, &mut out, chunk),
        Send::Sendfile(chunk) => by_sendfile(&file, &out, chunk),
    })?;
    drop(out);
    let taken = taken.join().map_err(|_panic| "the reader panicked")??;
    if taken != TOTAL {
        return Err(format!("{taken} bytes came of {TOTAL}").into());
    }
    Ok(took)
}

fn by_copy(path: &Path, out: &mut TcpStream, chunk: usize) -> Outcome {
    let file = DiskFiles::new().open(path, OpenMode::Read)?;
    let mut buffer = vec![0; chunk];
    for at in (0..TOTAL).step_by(chunk) {
        file.read_exact_at(&mut buffer, u64::try_from(at)?)?;
        out.write_all(&buffer)?;
    }
    Ok(())
}

fn by_sendfile(file: &StdFile, out: &TcpStream, chunk: usize) -> Outcome {
    let mut at = 0;
    let end = u64::try_from(TOTAL)?;
    while at < end {
        let left = usize::try_from(end - at)?;
        if sendfile(out, file, Some(&mut at), left.min(chunk))? == 0 {
            return Err("the file ended early".into());
        }
    }
    Ok(())
}
