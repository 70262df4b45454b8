//! What only newer versions may know: nullable structs, and the tagged fields that end a struct.

use super::{DecodeError, DecodeErrorKind, Form, Reader};

impl Reader<'_> {
    /// Whether a nullable struct follows: its marker is negative for null, as in Kafka.
    #[inline]
    pub fn is_present(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? >= 0)
    }

    /// Whether a nullable struct follows in a tagged field, where Kafka writes another marker: a
    /// varint, 0 for null.
    #[inline]
    pub fn is_present_in_tag(&mut self) -> Result<bool, DecodeError> {
        Ok(self.uvarint()? > 0)
    }

    /// The tagged fields at the end of a struct; nothing in the classic form.
    ///
    /// `known` gets each tag and a reader that ends where the field ends, and says whether it has
    /// read the field; fields it leaves are skipped. A field that is read must be read whole.
    pub fn tags(
        &mut self,
        form: Form,
        mut known: impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        if form == Form::Classic {
            return Ok(());
        }
        let count = self.uvarint()?;
        let mut previous: Option<u32> = None;
        for _ in 0..count {
            let start = self.at;
            let tag = self.uvarint()?;
            let rises = previous.is_none_or(|previous| previous < tag);
            if !rises && !crate::left_out("tag_order") {
                return Err(DecodeError::new(start, "tag", DecodeErrorKind::TagOrder));
            }
            previous = Some(tag);
            self.tag_body(tag, &mut known)?;
        }
        Ok(())
    }

    fn tag_body(
        &mut self,
        tag: u32,
        known: &mut impl FnMut(u32, &mut Self) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let start = self.at;
        let too_long = DecodeError::new(start, "tagged field", DecodeErrorKind::Truncated);
        let size = usize::try_from(self.uvarint()?).map_err(|_| too_long.clone())?;
        if size > self.remaining() && !crate::left_out("tag_size") {
            return Err(too_long);
        }
        let end = self.at + size;
        let whole = self.bytes;
        self.bytes = whole.get(..end).unwrap_or_default();
        let read = known(tag, self)?;
        if !read {
            self.at = end;
        }
        if self.at != end && !crate::left_out("tag_filled") {
            return Err(self.error("tagged field", DecodeErrorKind::TrailingBytes));
        }
        self.bytes = whole;
        Ok(())
    }

    /// Skips the tagged fields at the end of a struct; nothing in the classic form.
    pub fn skip_tags(&mut self, form: Form) -> Result<(), DecodeError> {
        self.tags(form, |_, _| Ok(false))
    }
}
