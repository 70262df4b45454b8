//! What an error code of a broker means for an item of a call.

use ottla_protocol::ErrorCode;
use ottla_protocol::error_code::Refresh;

use super::items::Item;
use super::{Calls, Route};
use crate::state::machine::Context;

/// How often a broker or the metadata must say that a topic is unknown before that is believed: one
/// that was just created is not known everywhere at once.
pub(super) const UNKNOWN_MAX: u32 = 5;

/// What to do about an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ask again after a while; of a change, whether it was begun is not known any more.
    Unsure,
    /// Find the leader or the controller, then ask again.
    Metadata,
    /// Find the coordinator, then ask again.
    Coordinator,
    /// Ask a leader again, a few times: it may be behind. Others are believed.
    Unknown,
    /// Ask again after a while.
    Later,
    /// It is told.
    Refused,
}

/// The meaning of an error code in an answer to an admin client, whatever the API.
pub(crate) const fn verdict(code: ErrorCode) -> Verdict {
    match code {
        ErrorCode::NOT_CONTROLLER => Verdict::Metadata,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => Verdict::Unknown,
        // The members will be through with it soon.
        ErrorCode::REBALANCE_IN_PROGRESS => Verdict::Later,
        // What it began may go on behind this answer.
        ErrorCode::REQUEST_TIMED_OUT => Verdict::Unsure,
        code if !code.is_retriable() => Verdict::Refused,
        code => match code.refresh() {
            Some(Refresh::Coordinator) => Verdict::Coordinator,
            Some(Refresh::Metadata) => Verdict::Metadata,
            None => Verdict::Later,
        },
    }
}

impl Calls {
    /// Whether to try again what a broker refused with this code; notes what is to be found anew.
    pub(super) fn may_help(
        &mut self,
        item: &mut Item,
        code: ErrorCode,
        changes: bool,
        cx: &mut Context<'_>,
    ) -> bool {
        match verdict(code) {
            Verdict::Metadata => cx.metadata.request_refresh(cx.now),
            Verdict::Coordinator => self.coordinators.handle_lost(&item.route, cx.now),
            Verdict::Unknown => {
                cx.metadata.request_refresh(cx.now);
                item.unknown = item.unknown.saturating_add(1);
                return matches!(item.route, Route::Leader(_)) && item.unknown < UNKNOWN_MAX;
            }
            Verdict::Unsure => item.begun |= changes,
            Verdict::Later => {}
            Verdict::Refused => return false,
        }
        true
    }
}
