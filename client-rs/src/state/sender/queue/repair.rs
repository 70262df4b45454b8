//! Numbering anew the batches behind a gap.

use super::{Numbering, Queue, Repair};
use crate::error::{Error, ErrorKind, Outcome};
use crate::state::sender::batch::{Sequence, State, sequence_after};

impl Queue {
    /// Numbers anew what must be, once nothing is on its way.
    ///
    /// False if that needs a new producer id.
    pub(crate) fn settle(&mut self, numbering: Numbering) -> bool {
        if self.repair == Repair::None || self.in_flight() > 0 {
            return true;
        }
        let Some(own) = self.own else {
            self.repair = Repair::None;
            return true;
        };
        let ambiguous = self.sent.iter().any(|batch| batch.ambiguous);
        let next = match self.repair {
            Repair::Renumber(base) if !ambiguous => self.first_number(Sequence { base, ..own }),
            _ => {
                let fresh = match numbering {
                    // Another id is on its way: this one is used up, or was another cluster's.
                    Numbering::Unknown => return true,
                    Numbering::By { producer_id, epoch } if producer_id != own.producer_id => {
                        Some((producer_id, epoch))
                    }
                    _ => own.epoch.checked_add(1).map(|epoch| (own.producer_id, epoch)),
                };
                let Some((producer_id, epoch)) = fresh else { return false };
                self.bumped = Some((producer_id, epoch));
                self.end_ambiguous();
                Sequence { producer_id, epoch, base: 0 }
            }
        };
        self.repair = Repair::None;
        self.renumber(next);
        self.pop_ended();
        true
    }

    /// The number of the first batch left: that of the gap, unless the gap is behind it.
    fn first_number(&self, gap: Sequence) -> Sequence {
        let behind = self.sent.iter().skip(1).any(|batch| batch.sequence == Some(gap));
        let front = self.sent.front().and_then(|batch| batch.sequence);
        front.filter(|_| behind).unwrap_or(gap)
    }

    /// A batch that may be stored is not sent again under another number, or it may be stored twice.
    fn end_ambiguous(&mut self) {
        for batch in &mut self.sent {
            if batch.ambiguous && matches!(batch.state, State::Waiting) {
                let text = "the broker lost count of this producer's records, so the batch cannot \
                            be sent again without the risk of a duplicate";
                let error = Error::new(ErrorKind::OutOfOrderSequence, text)
                    .with_outcome(Outcome::PossiblyPersisted);
                let error = match batch.last_error.clone() {
                    Some(source) => error.with_source(source),
                    None => error,
                };
                batch.state = State::Failed(error);
            }
        }
    }

    fn renumber(&mut self, mut next: Sequence) {
        for batch in &mut self.sent {
            if !matches!(batch.state, State::Waiting) {
                continue;
            }
            let sealed = batch.seal(Some(next));
            match sealed {
                Ok(()) => next.base = sequence_after(next.base, batch.records()),
                Err(error) => {
                    let text = "a batch cannot be sealed again";
                    let error = Error::new(ErrorKind::Internal, text).with_source(error);
                    batch.state = State::Failed(error.with_outcome(Outcome::Rejected));
                }
            }
        }
        self.known &= self.own.is_some_and(|own| own.producer_id == next.producer_id);
        self.own = Some(next);
    }
}
