//! Options as `lib/config.js` gives them: names and texts, which the core's table checks.

use ottla::{Error, Options};

/// The options of a client.
pub(crate) fn options(given: &[(String, String)]) -> Result<Options, Error> {
    let mut options = Options::new();
    for (name, value) in given {
        options = options.set(name, value)?;
    }
    Ok(options)
}
