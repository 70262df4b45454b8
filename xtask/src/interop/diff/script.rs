//! Conversations as people write them, to what the runner does; the form is told in
//! `conformance/conversations/README.md`.

use std::time::Duration;

use super::cursor::Cursor;
use super::value::Path;

/// One conversation.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) name: String,
    /// File and line, as a developer's editor takes them.
    pub(super) place: String,
    /// Runs before all others and by itself, on brokers that are still empty.
    pub(super) alone: bool,
    /// The API for each of whose versions it runs once, with `$v` as the version.
    pub(super) each: Option<String>,
    /// The shorthands of its file.
    pub(super) shorthands: Vec<Shorthand>,
    pub(super) steps: Vec<Step>,
    /// What may differ in any of its steps.
    pub(super) allowed: Vec<Allowed>,
}

/// `def produce(topic, records) = {…}`, at the head of a file.
#[derive(Clone, Debug)]
pub(super) struct Shorthand {
    pub(super) name: String,
    pub(super) parameters: Vec<String>,
    pub(super) body: Expr,
}

/// A field that may differ, and why.
#[derive(Clone, Debug)]
pub(super) struct Allowed {
    pub(super) line: usize,
    pub(super) path: Path,
    pub(super) reason: String,
}

/// One step of a conversation.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) line: usize,
    /// The connection that it uses.
    pub(super) connection: String,
    pub(super) action: Action,
    pub(super) allowed: Vec<Allowed>,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// `let $name = value`
    Let(String, Expr),
    /// `topic NAME as $id with {NumPartitions: 3}`: makes it, and waits until it is served.
    Topic { name: Expr, id: Option<String>, fields: Expr },
    /// `Fetch v12 {...}`, answered; or `send Fetch v12 {...}`, whose answer a later step receives.
    Call(Box<Call>),
    /// `receive`: the next answer on the connection.
    Receive(Vec<Capture>),
    /// `quiet 200`: no answer comes within so many milliseconds.
    Quiet(Duration),
    /// `raw 0x00`: bytes as they are.
    Raw(Expr),
    /// `rest`: what a `send … with {first: n}` held back.
    Rest,
    /// `closed`: whether the broker ends the connection.
    Closed,
    /// `close`: we end the connection.
    Close,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) api: String,
    pub(super) versions: Versions,
    pub(super) fields: Expr,
    /// Whether the answer is received at once.
    pub(super) ask: bool,
    pub(super) options: Option<Expr>,
    /// Ask again until the field has the value.
    pub(super) until: Option<(Path, Expr)>,
    pub(super) captures: Vec<Capture>,
}

/// `-> $name = Path`
#[derive(Clone, Debug)]
pub(super) struct Capture {
    pub(super) name: String,
    pub(super) path: Path,
}

/// The versions that a request is sent in, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Versions {
    /// `all`: each that the definition has.
    All,
    /// `v3` or `v3-7`
    Range(i16, i16),
    /// `$v`: that of the conversation, or the nearest that the API has.
    Current,
}

/// A value that may depend on what was answered before.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
    /// `$name`, and what is added to it.
    Variable(String, i64),
    List(Vec<Self>),
    Struct(Vec<(String, Self)>),
    Apply(String, Vec<Self>),
}

/// Reads a file of conversations.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Conversation>, String> {
    let mut conversations: Vec<Conversation> = Vec::new();
    let mut shorthands = Vec::new();
    for (line, statement) in statements(text) {
        let place = format!("conformance/conversations/{file}:{line}");
        let taken = match statement.strip_prefix("def ") {
            Some(shorthand) => define(shorthand).map(|shorthand| shorthands.push(shorthand)),
            None => take(&mut conversations, line, &place, &statement),
        };
        taken.map_err(|error| format!("{place}: {error}"))?;
    }
    for conversation in &mut conversations {
        conversation.shorthands.clone_from(&shorthands);
    }
    match conversations.iter().find(|conversation| conversation.steps.is_empty()) {
        Some(empty) => Err(format!("{}: {} has no step", empty.place, empty.name)),
        None => Ok(conversations),
    }
}

fn define(text: &str) -> Result<Shorthand, String> {
    let mut cursor = Cursor::new(text);
    let name = cursor.word()?;
    cursor.expect("(")?;
    let mut parameters = Vec::new();
    while !cursor.takes(")") {
        if !parameters.is_empty() {
            cursor.expect(",")?;
        }
        parameters.push(cursor.word()?);
    }
    cursor.expect("=")?;
    let body = cursor.value()?;
    cursor.end()?;
    Ok(Shorthand { name, parameters, body })
}

fn take(
    conversations: &mut Vec<Conversation>,
    line: usize,
    place: &str,
    statement: &str,
) -> Result<(), String> {
    if let Some(title) = statement.strip_prefix("conversation ") {
        conversations.push(conversation(title, place)?);
        return Ok(());
    }
    let Some(current) = conversations.last_mut() else {
        return Err("expected `conversation NAME` before this".to_owned());
    };
    if let Some(allowed) = statement.strip_prefix("allow ") {
        let (path, reason) =
            allowed.split_once(": ").ok_or("expected `allow PATH: reason` on one line")?;
        let allowed = Allowed { line, path: Path::parse(path)?, reason: reason.trim().to_owned() };
        match current.steps.last_mut() {
            Some(step) => step.allowed.push(allowed),
            None => current.allowed.push(allowed),
        }
        return Ok(());
    }
    current.steps.push(step(line, statement)?);
    Ok(())
}

fn conversation(title: &str, place: &str) -> Result<Conversation, String> {
    let mut words = title.split_whitespace();
    let name = words.next().ok_or("a conversation needs a name")?.to_owned();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if !name.chars().all(fits) {
        return Err(format!("{name}: letters, digits and `-` make a name"));
    }
    let (mut alone, mut each) = (false, None);
    while let Some(word) = words.next() {
        match word {
            "alone" => alone = true,
            "each" => each = Some(words.next().ok_or("`each` needs an API")?.to_owned()),
            other => return Err(format!("{other}: expected `alone` or `each API`")),
        }
    }
    let place = place.to_owned();
    Ok(Conversation {
        name,
        place,
        alone,
        each,
        shorthands: Vec::new(),
        steps: Vec::new(),
        allowed: Vec::new(),
    })
}

/// The statements of a file with the lines on which they begin. A statement goes on while a
/// bracket is open, and on lines that begin with `->`, `until` or `with`.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut depth = 0_i32;
    for (at, raw) in text.lines().enumerate() {
        let plain = raw.trim_start().starts_with("allow ");
        let line = if plain { raw.trim() } else { without_comment(raw).trim() };
        if line.is_empty() {
            continue;
        }
        let goes_on = ["->", "until ", "with "].iter().any(|word| line.starts_with(word));
        match all.last_mut() {
            Some((_, statement)) if depth > 0 || goes_on => {
                statement.push(' ');
                statement.push_str(line);
            }
            _ => all.push((at + 1, line.to_owned())),
        }
        if !plain {
            depth += opened(line);
        }
    }
    all
}

fn without_comment(line: &str) -> &str {
    let mut in_text = false;
    for (at, letter) in line.char_indices() {
        match letter {
            '"' => in_text = !in_text,
            '#' if !in_text => return &line[..at],
            _ => {}
        }
    }
    line
}

/// How many more brackets a line opens than it closes.
fn opened(line: &str) -> i32 {
    let mut in_text = false;
    let mut depth = 0;
    for letter in line.chars() {
        match letter {
            '"' => in_text = !in_text,
            '{' | '[' | '(' if !in_text => depth += 1,
            '}' | ']' | ')' if !in_text => depth -= 1,
            _ => {}
        }
    }
    depth
}

fn step(line: usize, statement: &str) -> Result<Step, String> {
    let mut cursor = Cursor::new(statement);
    let mut connection = "A".to_owned();
    let mut first = cursor.word()?;
    if cursor.takes(":") {
        connection = first;
        first = cursor.word()?;
    }
    let action = action(&first, &mut cursor)?;
    cursor.end()?;
    Ok(Step { line, connection, action, allowed: Vec::new() })
}

fn action(first: &str, cursor: &mut Cursor<'_>) -> Result<Action, String> {
    Ok(match first {
        "let" => {
            let name = cursor.variable()?;
            cursor.expect("=")?;
            Action::Let(name, cursor.value()?)
        }
        "topic" => topic(cursor)?,
        "receive" => Action::Receive(captures(cursor)?),
        "quiet" => match cursor.value()? {
            Expr::Number(ms @ 0..=2_000) => Action::Quiet(Duration::from_millis(ms.unsigned_abs())),
            _ => return Err("`quiet` takes 0 to 2000 milliseconds".to_owned()),
        },
        "raw" => Action::Raw(cursor.value()?),
        "rest" => Action::Rest,
        "closed" => Action::Closed,
        "close" => Action::Close,
        "send" => {
            let api = cursor.word()?;
            call(api, false, cursor)?
        }
        api if api.starts_with(|letter: char| letter.is_ascii_uppercase()) => {
            call(api.to_owned(), true, cursor)?
        }
        other => return Err(format!("{other} is no step")),
    })
}

fn topic(cursor: &mut Cursor<'_>) -> Result<Action, String> {
    let name = cursor.value()?;
    let id = if cursor.takes_word("as") { Some(cursor.variable()?) } else { None };
    let fields = if cursor.takes_word("with") { cursor.value()? } else { Expr::Struct(Vec::new()) };
    Ok(Action::Topic { name, id, fields })
}

fn call(api: String, ask: bool, cursor: &mut Cursor<'_>) -> Result<Action, String> {
    let versions = versions(&cursor.until_space())?;
    let fields = cursor.value()?;
    let options = if cursor.takes_word("with") { Some(cursor.value()?) } else { None };
    let until = if cursor.takes_word("until") {
        let path = Path::parse(cursor.until_any("="))?;
        cursor.expect("=")?;
        Some((path, cursor.value()?))
    } else {
        None
    };
    let captures = captures(cursor)?;
    if !ask && (until.is_some() || !captures.is_empty()) {
        return Err("`send` awaits no answer: `receive` does".to_owned());
    }
    Ok(Action::Call(Box::new(Call { api, versions, fields, ask, options, until, captures })))
}

fn captures(cursor: &mut Cursor<'_>) -> Result<Vec<Capture>, String> {
    let mut captures = Vec::new();
    if !cursor.takes("->") {
        return Ok(captures);
    }
    loop {
        let name = cursor.variable()?;
        cursor.expect("=")?;
        captures.push(Capture { name, path: Path::parse(cursor.until_any(","))? });
        if !cursor.takes(",") {
            return Ok(captures);
        }
    }
}

fn versions(word: &str) -> Result<Versions, String> {
    let wrong = || format!("{word:?}: expected a version as v3, v3-7, all or $v");
    if word == "all" {
        return Ok(Versions::All);
    }
    if word == "$v" {
        return Ok(Versions::Current);
    }
    let numbers = word.strip_prefix('v').ok_or_else(wrong)?;
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(Versions::Range(first, last)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_goes_on_while_a_bracket_is_open() {
        let text = "conversation one each Fetch # why\n  Fetch $v {Topics: [ # first\n  \
            {Topic: \"a # b\"}]}\n  -> $x = Topics[0].Topic\n  allow A.B: (it: is so\n  B: closed";
        let all = parse("t", text).expect("a conversation");
        assert_eq!((all[0].name.as_str(), all[0].each.as_deref()), ("one", Some("Fetch")));
        assert_eq!(all[0].steps.len(), 2);
        assert_eq!(all[0].steps[0].allowed[0].reason, "(it: is so");
        let Action::Call(call) = &all[0].steps[0].action else { panic!("a call") };
        assert_eq!(call.captures[0].name, "x");
        assert_eq!(all[0].steps[1].connection, "B");
    }

    #[test]
    fn what_is_no_step_is_refused_with_its_line() {
        for bad in ["hello", "Fetch 12 {}", "Fetch v3 {a: }", "quiet 60000", "Fetch v1 {} {}"] {
            let error = parse("t", &format!("conversation x\n  {bad}")).expect_err(bad);
            assert!(error.starts_with("conformance/conversations/t:2: "), "{error}");
        }
        assert!(parse("t", "conversation x").is_err());
    }
}
