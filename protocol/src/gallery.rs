//! Rules that one kind of build can leave out, so that it is seen whether a test notices.

/// True if this is a build with `cfg(ottla_gallery)` whose environment names the rule in
/// `OTTLA_LEFT_OUT`. No build that is released, and none but `cargo xtask test gallery`, is one.
#[cfg(ottla_gallery)]
pub fn left_out(rule: &str) -> bool {
    static NAMED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    NAMED.get_or_init(|| std::env::var("OTTLA_LEFT_OUT").ok()).as_deref() == Some(rule)
}

/// False: no rule of this build can be left out.
#[cfg(not(ottla_gallery))]
#[inline]
pub const fn left_out(_rule: &str) -> bool {
    false
}
