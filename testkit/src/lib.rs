//! What client and broker are held against each other with. Never published.

pub mod sim;
