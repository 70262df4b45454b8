//! The lock on a log directory: one owner, across processes and within this one.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::FlockOperation;

use crate::error::{LogError, LogErrorKind};

/// Directories locked by this process, as (device, inode).
///
/// The system's lock belongs to the process: it would let a second owner in here, and closing any
/// descriptor of the lock file would drop it.
static HELD: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// What Linux calls this boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A noted boot is shorter.
const NOTE_MAX: usize = 256;

/// Holds a log directory until it is dropped. Kafka takes the same lock on the same file, `.lock`.
#[derive(Debug)]
pub struct DirectoryLock {
    file: fs::File,
    same_boot: bool,
    _held: Held,
}

#[derive(Debug)]
struct Held((u64, u64));

impl Drop for Held {
    fn drop(&mut self) {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

impl DirectoryLock {
    /// Locks a directory, which must exist; kind `Locked` if somebody has it.
    pub fn acquire(dir: &Path) -> Result<Self, LogError> {
        let (file, held) = lock(dir)?;
        let same_boot = note_boot(&file).map_err(|error| {
            LogError::io(&dir.join(".lock"), "cannot write the lock file", error)
        })?;
        Ok(Self { file, same_boot, _held: held })
    }

    /// Locks a directory to mend it: the boot that its last owner noted stays noted, so that the
    /// next owner is still told whether the power was cut.
    pub fn acquire_to_mend(dir: &Path) -> Result<Self, LogError> {
        let same_boot = Self::noted_this_boot(dir);
        let (file, held) = lock(dir)?;
        Ok(Self { file, same_boot, _held: held })
    }

    /// Whether this boot of the machine is the one that the directory's last owner noted. Takes no
    /// lock and notes nothing.
    pub fn noted_this_boot(dir: &Path) -> bool {
        // Closing the file would drop the lock of a broker in this process, which has noted it.
        let key = fs::metadata(dir).map(|metadata| (metadata.dev(), metadata.ino()));
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if key.is_ok_and(|key| held.contains(&key)) {
            return true;
        }
        drop(held);
        let noted = fs::File::open(dir.join(".lock")).and_then(|file| {
            let mut noted = [0; NOTE_MAX];
            let len = file.read_at(&mut noted, 0)?;
            Ok(noted.get(..len).map(<[u8]>::to_vec))
        });
        this_boot().is_some_and(|boot| noted.is_ok_and(|noted| noted == Some(boot.into_bytes())))
    }

    /// Whether the machine has run on since the directory was last locked.
    ///
    /// Then no write was lost with the power, and only the last one can be torn.
    pub const fn same_boot(&self) -> bool {
        self.same_boot
    }

    /// The locked descriptor, for a fork handler that must know it.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes the lock of a directory, in this process and against others.
fn lock(dir: &Path) -> Result<(fs::File, Held), LogError> {
    let metadata = fs::metadata(dir)
        .map_err(|error| LogError::io(dir, "cannot look at the log directory", error))?;
    let key = (metadata.dev(), metadata.ino());
    if !HELD.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
        let what = "the log directory is in use by another broker in this process";
        return Err(LogError::new(LogErrorKind::Locked, dir, what));
    }
    let held = Held(key);
    let path = dir.join(".lock");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| LogError::io(&path, "cannot open the lock file", error))?;
    match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => {
            let what = "the log directory is in use by another process";
            return Err(LogError::new(LogErrorKind::Locked, dir, what));
        }
        Err(error) => {
            return Err(LogError::io(&path, "cannot lock the log directory", error.into()));
        }
    }
    Ok((file, held))
}

/// How this boot is noted; `None` where the system does not tell.
fn this_boot() -> Option<String> {
    let boot = fs::read_to_string(BOOT_ID).ok()?;
    Some(format!("boot_id={}\n", boot.trim()))
}

/// Compares the boot noted in the file with this one, and notes this one.
fn note_boot(file: &fs::File) -> io::Result<bool> {
    let Some(boot) = this_boot() else { return Ok(false) };
    let mut noted = vec![0; boot.len() + 1];
    let len = file.read_at(&mut noted, 0)?;
    noted.truncate(len);
    if noted == boot.as_bytes() {
        return Ok(true);
    }
    file.set_len(0)?;
    file.write_all_at(boot.as_bytes(), 0)?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_in_a_process() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let first = DirectoryLock::acquire(dir.path()).expect("free");
        assert!(!first.same_boot(), "never locked before");
        let other = DirectoryLock::acquire(&dir.path().join(".")).expect_err("taken");
        assert_eq!(other.kind(), LogErrorKind::Locked);
        assert!(other.to_string().contains("stop the other broker"), "{other}");
        drop(first);
        let again = DirectoryLock::acquire(dir.path()).expect("free again");
        assert_eq!(again.same_boot(), Path::new(BOOT_ID).exists());
    }

    /// The test runs itself in another process, which tries to take the lock that this one has.
    #[test]
    fn a_directory_has_one_owner_across_processes() {
        const ASKED: &str = "OTTLA_TEST_LOCK_DIR";
        if let Some(dir) = std::env::var_os(ASKED) {
            let kind = DirectoryLock::acquire(Path::new(&dir)).map_err(|error| error.kind());
            match kind {
                Ok(_) => println!("lock is free"),
                Err(LogErrorKind::Locked) => println!("lock is held"),
                Err(other) => panic!("{other:?}"),
            }
            return;
        }
        let dir = tempfile::tempdir().expect("a temporary folder");
        let lock = DirectoryLock::acquire(dir.path()).expect("free");
        let ask = || {
            let output = std::process::Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "lock::tests::a_directory_has_one_owner_across_processes"])
                .arg("--nocapture")
                .env(ASKED, dir.path())
                .output()
                .expect("runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let told = ask();
        assert!(told.contains("lock is held"), "{told}");
        drop(lock);
        let told = ask();
        assert!(told.contains("lock is free"), "{told}");
    }
}
