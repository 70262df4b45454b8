//! Values of a conversation once its variables are known.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::batch;
use super::script::{Expr, Shorthand};
use super::value::Value;

/// The most that `repeat`, `zeros` and `list` make.
const MOST: i64 = 1 << 21;

/// What a run knows by name.
#[derive(Clone, Debug)]
pub(super) struct Scope<'c> {
    pub(super) shorthands: &'c [Shorthand],
    /// What `~` stands for: no two conversations share a topic or group by accident.
    pub(super) prefix: String,
    pub(super) variables: BTreeMap<String, Value>,
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}

impl Scope<'_> {
    pub(super) fn get(&self, name: &str) -> Result<&Value, String> {
        self.variables.get(name).ok_or_else(|| format!("${name} is not known here"))
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.variables.insert(name.to_owned(), value);
    }

    pub(super) fn value(&self, expr: &Expr) -> Result<Value, String> {
        Ok(match expr {
            Expr::Null => Value::Null,
            Expr::Bool(yes) => Value::Bool(*yes),
            Expr::Number(number) => Value::Number(*number),
            Expr::Text(text) => Value::Text(self.text(text)?),
            Expr::Bytes(bytes) => Value::Bytes(bytes.clone()),
            Expr::Variable(name, 0) => self.get(name)?.clone(),
            Expr::Variable(name, added) => match self.get(name)? {
                Value::Number(number) => Value::Number(number.wrapping_add(*added)),
                other => return Err(format!("${name} is {other}, to which nothing can be added")),
            },
            Expr::List(items) => Value::List(self.all(items)?),
            Expr::Struct(fields) => {
                let fields =
                    fields.iter().map(|(name, expr)| Ok((name.clone(), self.value(expr)?)));
                Value::Struct(fields.collect::<Result<_, String>>()?)
            }
            Expr::Apply(name, arguments) => {
                let arguments = self.all(arguments)?;
                match self.shorthands.iter().find(|shorthand| shorthand.name == *name) {
                    Some(shorthand) => self.expand(shorthand, arguments)?,
                    None => apply(name, &arguments)?,
                }
            }
        })
    }

    /// A shorthand sees those that stand before it in its file, so it never comes to itself.
    fn expand(&self, shorthand: &Shorthand, arguments: Vec<Value>) -> Result<Value, String> {
        let Shorthand { name, parameters, body } = shorthand;
        if parameters.len() != arguments.len() {
            return Err(format!("{name} takes {} values", parameters.len()));
        }
        let before = self.shorthands.iter().position(|other| other.name == *name);
        let mut inner = self.clone();
        inner.shorthands = &self.shorthands[..before.unwrap_or_default()];
        for (parameter, argument) in parameters.iter().zip(arguments) {
            inner.set(parameter, argument);
        }
        inner.value(body)
    }

    fn all(&self, exprs: &[Expr]) -> Result<Vec<Value>, String> {
        exprs.iter().map(|expr| self.value(expr)).collect()
    }

    /// `~orders` becomes the conversation's own; `$name` is put in.
    fn text(&self, text: &str) -> Result<String, String> {
        let text = text.replace('~', &self.prefix);
        let mut out = String::new();
        let mut parts = text.split('$');
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let end = part.find(|found| !letter(found)).unwrap_or(part.len());
            out.push_str(&self.get(&part[..end])?.plain());
            out.push_str(&part[end..]);
        }
        Ok(out)
    }
}

fn apply(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let wrong = || {
        let shown: Vec<String> = arguments.iter().map(Value::shown).collect();
        format!("{name}({}) is not understood", shown.join(", "))
    };
    Ok(match (name, arguments) {
        ("batch", [Value::List(records)]) => Value::Bytes(batch::encode(records, &[])?),
        ("batch", [Value::List(records), Value::Struct(given)]) => {
            Value::Bytes(batch::encode(records, given)?)
        }
        ("set", [Value::Struct(all), Value::Struct(some)]) => {
            let kept = all.iter().filter(|(name, _)| !some.iter().any(|(other, _)| other == name));
            Value::Struct(kept.chain(some).cloned().collect())
        }
        ("join", parts) => Value::Bytes(join(parts).ok_or_else(wrong)?),
        ("repeat", [Value::Text(text), Value::Number(count)]) => {
            Value::Text(text.repeat(size(*count)?))
        }
        ("zeros", [Value::Number(count)]) => Value::Bytes(vec![0; size(*count)?]),
        ("list", [item, Value::Number(count)]) => Value::List(vec![item.clone(); size(*count)?]),
        ("now", []) => Value::Number(now_ms()),
        ("now", [Value::Number(later)]) => Value::Number(now_ms() + later),
        ("uuid", [Value::Number(number)]) => {
            let mut bytes = [0; 16];
            bytes[8..].copy_from_slice(&number.to_be_bytes());
            Value::Uuid(bytes)
        }
        ("subscription", topics) => Value::Bytes(subscription(topics).ok_or_else(wrong)?),
        ("head", [Value::Bytes(bytes), Value::Number(count)]) => {
            Value::Bytes(bytes.get(..size(*count)?).ok_or_else(wrong)?.to_vec())
        }
        _ => return Err(wrong()),
    })
}

fn size(count: i64) -> Result<usize, String> {
    let fits = usize::try_from(count).ok().filter(|_| count <= MOST);
    fits.ok_or_else(|| format!("{count} is not from 0 to {MOST}"))
}

fn join(parts: &[Value]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Value::Bytes(bytes) => all.extend_from_slice(bytes),
            Value::Text(text) => all.extend_from_slice(text.as_bytes()),
            _ => return None,
        }
    }
    Some(all)
}

/// A consumer's metadata in JoinGroup, version 0: its topics and no data of its user.
fn subscription(topics: &[Value]) -> Option<Vec<u8>> {
    let mut out = vec![0, 0];
    out.extend(i32::try_from(topics.len()).ok()?.to_be_bytes());
    for topic in topics {
        let Value::Text(topic) = topic else { return None };
        out.extend(i16::try_from(topic.len()).ok()?.to_be_bytes());
        out.extend_from_slice(topic.as_bytes());
    }
    out.extend((-1_i32).to_be_bytes());
    Some(out)
}
