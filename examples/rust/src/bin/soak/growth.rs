//! What a process takes of the system, and whether that grows.

use std::fs;

/// The rule, in words.
pub(crate) const RULE: &str = "without the first fifth of the samples, the median of the last \
    third may be above that of the first third by 10 % and 16 MiB of memory, by 10 % and 8 \
    descriptors, and by 10 % and 4 threads";

/// Samples that a judgement needs: at one in two seconds, 5 minutes.
const ENOUGH: usize = 150;

/// What a process takes at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Resident memory in KiB.
    pub(crate) memory_kib: u64,
    /// Open file descriptors.
    pub(crate) files: u64,
    pub(crate) threads: u64,
}

impl Sample {
    /// Of a process; nothing if there is none of that number any more.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(Self {
            memory_kib: line("VmRSS:")?,
            files: u64::try_from(files).ok()?,
            threads: line("Threads:")?,
        })
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MiB {} fds {} threads", self.memory_kib >> 10, self.files, self.threads)
    }
}

/// Whether a process grew, and by how much. `None` if there are too few samples to tell.
pub(crate) fn judge(samples: &[Sample]) -> Option<Result<String, String>> {
    let warm = samples.get(samples.len() / 5..).filter(|_| samples.len() >= ENOUGH)?;
    let third = warm.len() / 3;
    let (first, last) = (warm.get(..third)?, warm.get(warm.len() - third..)?);
    let mut grown = false;
    let mut said = Vec::new();
    let mut compare = |unit: &str, of: fn(&Sample) -> u64, room: u64| {
        let (first, last) = (median(first, of), median(last, of));
        grown |= last > first + first / 10 + room;
        said.push(format!("{first} → {last} {unit}"));
    };
    compare("KiB", |sample| sample.memory_kib, 16 << 10);
    compare("fds", |sample| sample.files, 8);
    compare("threads", |sample| sample.threads, 4);
    let said = said.join(", ");
    Some(if grown { Err(said) } else { Ok(said) })
}

fn median(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    let mut figures: Vec<u64> = samples.iter().map(of).collect();
    figures.sort_unstable();
    figures.get(figures.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STILL: Sample = Sample { memory_kib: 50_000, files: 40, threads: 20 };

    /// Ten minutes of samples, each by its number.
    fn samples(of: impl Fn(u64) -> Sample) -> Vec<Sample> {
        (0..300).map(of).collect()
    }

    #[test]
    fn a_process_that_stays_as_it_is_after_it_got_warm_does_not_grow() {
        let warming = samples(|at| Sample { memory_kib: 50_000.min(at * 1_000), ..STILL });
        assert_eq!(
            judge(&warming).unwrap().unwrap(),
            "50000 → 50000 KiB, 40 → 40 fds, 20 → 20 threads"
        );
    }

    #[test]
    fn peaks_that_come_and_go_are_no_growth() {
        let peaks =
            samples(|at| if at % 7 == 0 { Sample { memory_kib: 900_000, ..STILL } } else { STILL });
        assert!(judge(&peaks).unwrap().is_ok());
    }

    #[test]
    fn memory_descriptors_or_threads_that_leak_are_noticed() {
        // 80 KiB a second; a descriptor in 16 s; a thread in 32 s.
        let memory = samples(|at| Sample { memory_kib: 50_000 + at * 160, ..STILL });
        assert!(judge(&memory).unwrap().is_err());
        let files = samples(|at| Sample { files: 40 + at / 8, ..STILL });
        assert!(judge(&files).unwrap().is_err());
        let threads = samples(|at| Sample { threads: 20 + at / 16, ..STILL });
        assert!(judge(&threads).unwrap().is_err());
    }

    #[test]
    fn growth_within_the_rooms_of_the_rule_is_allowed_and_one_step_more_is_not() {
        let step = |more: Sample| {
            let grown = samples(|at| if at < 180 { STILL } else { more });
            judge(&grown).unwrap().is_ok()
        };
        let most = Sample { memory_kib: 50_000 + 5_000 + 16_384, files: 40 + 4 + 8, threads: 26 };
        assert!(step(most));
        assert!(!step(Sample { memory_kib: most.memory_kib + 1, ..most }));
        assert!(!step(Sample { files: most.files + 1, ..most }));
        assert!(!step(Sample { threads: most.threads + 1, ..most }));
    }

    #[test]
    fn a_short_run_is_not_judged() {
        assert_eq!(judge(&vec![STILL; ENOUGH - 1]), None);
        assert!(judge(&vec![STILL; ENOUGH]).is_some());
    }

    #[test]
    fn this_process_takes_something() {
        let sample = Sample::of(std::process::id()).unwrap();
        assert!(sample.memory_kib > 0 && sample.files > 2 && sample.threads > 0);
        assert_eq!(Sample::of(0), None);
    }
}
