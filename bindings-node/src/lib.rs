//! Ottla for Node.
