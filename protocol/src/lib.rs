//! The Apache Kafka wire protocol: bytes to types and back, without I/O.
//!
//! `reader` and `writer` hold the primitives, `frame` the request and response frames around them,
//! `messages` the generated types of every API and record schema this project speaks, `api` and
//! `error_code` Kafka's tables, and `session` pairs answers with questions.

pub mod api;
pub mod error_code;
pub mod frame;
mod gallery;
pub mod message;
pub mod messages;
pub mod reader;
pub mod record;
pub mod session;
pub mod uuid;
pub mod writer;

pub use api::ApiKey;
pub use error_code::ErrorCode;
#[doc(hidden)]
pub use gallery::left_out;
pub use message::{KeyedMessage, Message, Request, Response};
pub use reader::{DecodeError, Form, Reader};
pub use uuid::Uuid;
pub use writer::{EncodeError, Records, Writer};
