//! Marks that tell a fresh answer from a stale one.

/// Names one question; its answer comes back with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(u64);

/// Gives out tokens, none twice.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    given: u64,
}

impl Tokens {
    /// The next token.
    pub(crate) const fn next(&mut self) -> Token {
        self.given += 1;
        Token(self.given)
    }
}
