//! One partition, as the application sees it.

use std::collections::VecDeque;

use super::{Current, Item};
use crate::state::commits::Mark;

/// One partition, as the application sees it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) lease: u64,
    pub(super) position: u64,
    /// The first position of which something may still be given out, or may be in the program's hands.
    pub(super) oldest: u64,
    pub(super) paused: bool,
    /// So much of it is unfinished here and there that nothing more is given out.
    pub(super) scattered: bool,
    /// Kept over a rebalance, and given out again only if it stays with this member.
    pub(super) held: bool,
    /// The application is still to be told that it has it.
    pub(super) untold: bool,
    /// A thread makes records of an item just now.
    pub(super) decoding: bool,
    /// Whether it stands in the ready list.
    pub(super) listed: bool,
    pub(super) begun: VecDeque<Current>,
    pub(super) items: VecDeque<Item>,
    /// The next offset to give out, where nothing ready tells.
    pub(super) next: Option<i64>,
    /// Where its log ends, as far as was told.
    pub(super) end: Option<i64>,
    pub(super) buffered: usize,
}

impl Part {
    /// Reads on from an offset that no record was read at, and gives the mark by which it is
    /// committed like what was read.
    pub(super) const fn begin_at(&mut self, position: u64, offset: i64) -> Mark {
        (self.oldest, self.next) = (position, Some(offset));
        let (lease, leader_epoch, metadata) = (self.lease, -1, None);
        let (jump, by_hand, beyond) = (position, false, 0);
        Mark { lease, jump, offset, leader_epoch, by_hand, metadata, beyond }
    }

    pub(super) const fn new(lease: u64, position: u64) -> Self {
        Self {
            lease,
            position,
            oldest: position,
            paused: false,
            scattered: false,
            held: false,
            untold: false,
            decoding: false,
            listed: false,
            begun: VecDeque::new(),
            items: VecDeque::new(),
            next: None,
            end: None,
            buffered: 0,
        }
    }

    /// Goes to another position; of those before it nothing counts any more.
    pub(super) const fn move_to(&mut self, position: u64) {
        (self.position, self.oldest) = (position, position);
    }

    /// Whether what was fetched at that position still counts.
    pub(super) const fn is_at(&self, position: u64) -> bool {
        self.oldest <= position && position <= self.position
    }

    /// Whether it may be given out from.
    pub(super) const fn is_open(&self) -> bool {
        !self.rests() && !self.held && !self.untold && !self.decoding
    }

    /// Whether it gives nothing out for as long as the program likes.
    pub(super) const fn rests(&self) -> bool {
        self.paused || self.scattered
    }

    /// Holds no whole answers for a part of them.
    pub(super) fn let_go(&mut self) {
        for item in &mut self.items {
            if let Item::Data(fetched) = item {
                fetched.let_go();
            }
        }
        self.begun.iter_mut().for_each(Current::let_go);
    }

    pub(super) fn has_items(&self) -> bool {
        !self.begun.is_empty() || !self.items.is_empty()
    }

    /// Whether it is kept from giving anything out.
    pub(super) const fn is_closed(&self) -> bool {
        self.rests() || self.held || self.untold
    }
}
