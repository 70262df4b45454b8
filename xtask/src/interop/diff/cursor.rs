//! Words and values of one statement of a conversation.

use super::script::Expr;

/// What is left of a statement.
pub(super) struct Cursor<'t> {
    rest: &'t str,
}

/// The most that lists and structs lie in each other.
const DEPTH: usize = 16;

fn word_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { rest: text.trim() }
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Whether this comes next; it is taken then.
    pub(super) fn takes(&mut self, mark: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Whether this word comes next and ends there; it is taken then.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(word) {
            Some(rest) if !rest.starts_with(word_letter) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    pub(super) fn expect(&mut self, mark: &str) -> Result<(), String> {
        if self.takes(mark) { Ok(()) } else { Err(format!("expected {mark} at `{}`", self.rest)) }
    }

    pub(super) fn end(&mut self) -> Result<(), String> {
        self.skip();
        if self.rest.is_empty() { Ok(()) } else { Err(format!("not understood: {}", self.rest)) }
    }

    /// Letters, digits, `_` and `-`.
    pub(super) fn word(&mut self) -> Result<String, String> {
        self.skip();
        let end = self.rest.find(|letter| !word_letter(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(format!("expected a word at `{}`", self.rest));
        }
        self.rest = rest;
        Ok(word.to_owned())
    }

    pub(super) fn variable(&mut self) -> Result<String, String> {
        self.expect("$")?;
        self.name()
    }

    /// The name of a variable; a `-` would take something from it.
    fn name(&mut self) -> Result<String, String> {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = self.rest.find(|found| !letter(found)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return Err(format!("expected a name after $ at `{}`", self.rest));
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// All up to a space.
    pub(super) fn until_space(&mut self) -> String {
        self.skip();
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    /// All up to the mark, which stays.
    pub(super) fn until_any(&mut self, mark: &str) -> &'t str {
        let end = self.rest.find(mark).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text.trim()
    }

    pub(super) fn value(&mut self) -> Result<Expr, String> {
        self.nested(0)
    }

    fn nested(&mut self, depth: usize) -> Result<Expr, String> {
        self.skip();
        if depth > DEPTH {
            return Err("lists and structs lie too deep in each other".to_owned());
        }
        match self.rest.chars().next() {
            Some('{') => self.fields(depth),
            Some('[') => Ok(Expr::List(self.items("[", "]", depth)?)),
            Some('"') => self.quoted(),
            Some('$') => self.sum(),
            Some('0') if self.rest.starts_with("0x") => self.hex(),
            Some(first) if first.is_ascii_digit() || first == '-' => self.number(),
            Some(first) if first.is_ascii_alphabetic() => self.named(depth),
            _ => Err(format!("expected a value at `{}`", self.rest)),
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Expr, String> {
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.takes("}") {
            if !fields.is_empty() {
                self.expect(",")?;
            }
            let name = self.word()?;
            self.expect(":")?;
            fields.push((name, self.nested(depth + 1)?));
        }
        Ok(Expr::Struct(fields))
    }

    fn items(&mut self, open: &str, close: &str, depth: usize) -> Result<Vec<Expr>, String> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.takes(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(self.nested(depth + 1)?);
        }
        Ok(items)
    }

    fn quoted(&mut self) -> Result<Expr, String> {
        self.expect("\"")?;
        let end = self.rest.find('"').ok_or("a text has no end")?;
        let text = self.rest[..end].replace("\\n", "\n");
        self.rest = &self.rest[end + 1..];
        Ok(Expr::Text(text))
    }

    fn sum(&mut self) -> Result<Expr, String> {
        let name = self.variable()?;
        let added = match self.rest.chars().next() {
            Some(sign @ ('+' | '-')) => {
                self.rest = &self.rest[1..];
                let Expr::Number(number) = self.number()? else {
                    return Err("expected a number".to_owned());
                };
                if sign == '-' { -number } else { number }
            }
            _ => 0,
        };
        Ok(Expr::Variable(name, added))
    }

    fn hex(&mut self) -> Result<Expr, String> {
        self.expect("0x")?;
        let digit = |letter: char| letter.is_ascii_hexdigit() || letter == '_';
        let end = self.rest.find(|letter| !digit(letter)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let digits: Vec<u8> =
            text.chars().filter_map(|letter| u8::try_from(letter.to_digit(16)?).ok()).collect();
        let pairs = digits.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(format!("0x{text} has half a byte"));
        }
        Ok(Expr::Bytes(pairs.map(|pair| pair[0] << 4 | pair[1]).collect()))
    }

    fn number(&mut self) -> Result<Expr, String> {
        let from = usize::from(self.rest.starts_with('-'));
        let end = self.rest[from..].find(|letter: char| !letter.is_ascii_digit());
        let (text, rest) = self.rest.split_at(end.map_or(self.rest.len(), |end| end + from));
        self.rest = rest;
        text.parse().map(Expr::Number).map_err(|_| format!("{text:?} is no number"))
    }

    fn named(&mut self, depth: usize) -> Result<Expr, String> {
        let word = self.word()?;
        if self.rest.starts_with('(') {
            return Ok(Expr::Apply(word, self.items("(", ")", depth)?));
        }
        Ok(match word.as_str() {
            "null" => Expr::Null,
            "true" => Expr::Bool(true),
            "false" => Expr::Bool(false),
            _ => Expr::Text(word),
        })
    }
}
