//! What changes of options come to.

use super::*;

/// A list `colours` (default `red`) and a number `size`; `fixed` cannot be changed.
struct Rules;

impl OptionRules for Rules {
    fn check(&self, own: &BTreeMap<Arc<str>, Arc<str>>) -> Result<(), Refusal> {
        let wrong = own.iter().find(|(name, value)| match &***name {
            "size" => value.parse::<u8>().is_err(),
            "colours" => value.split(',').any(|word| !matches!(word, "red" | "blue" | "")),
            _ => true,
        });
        wrong.map_or(Ok(()), |(name, _)| Err(Refusal::new(ErrorCode::INVALID_CONFIG, &**name)))
    }

    fn check_changeable(&self, name: &str) -> Result<(), Refusal> {
        let fixed = Refusal::new(ErrorCode::INVALID_REQUEST, "fixed");
        if name == "fixed" { Err(fixed) } else { Ok(()) }
    }

    fn is_list(&self, name: &str) -> bool {
        name == "colours"
    }

    fn default_of(&self, name: &str) -> Option<String> {
        (name == "colours").then(|| "red".to_owned())
    }
}

fn resource() -> Resource {
    Resource::topic(&Arc::from("t"))
}

fn set(value: &str) -> Change {
    Change::Set(Some(value.to_owned()))
}

fn append(value: &str) -> Change {
    Change::Append(Some(value.to_owned()))
}

fn subtract(value: &str) -> Change {
    Change::Subtract(Some(value.to_owned()))
}

/// Changes one option, and tells what the resource has then.
fn change(
    image: &mut Image,
    name: &str,
    change: Change,
) -> Result<Vec<(String, String)>, ErrorCode> {
    all(image, vec![(name, change)], false).map_err(|refusal| refusal.code)
}

fn all(
    image: &mut Image,
    changes: Vec<(&str, Change)>,
    replaces: bool,
) -> Result<Vec<(String, String)>, Refusal> {
    let changes = changes.into_iter().map(|(name, change)| (name.to_owned(), change));
    let alteration = Alteration { resource: resource(), changes: changes.collect(), replaces };
    for record in alter(image, &alteration, &Rules)? {
        image.replay(&record).unwrap();
    }
    let own = image.overrides(&resource()).map(|own| (**own).clone()).unwrap_or_default();
    Ok(own.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

#[allow(clippy::unnecessary_wraps, reason = "compared with what may be an error")]
fn is(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, ErrorCode> {
    Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

#[test]
fn options_are_set_and_deleted() {
    let mut image = Image::default();
    assert_eq!(change(&mut image, "size", set(" 7 ")), is(&[("size", "7")]));
    assert_eq!(change(&mut image, "size", set("x")), Err(ErrorCode::INVALID_CONFIG));
    assert_eq!(
        change(&mut image, "colours", set("blue")),
        is(&[("colours", "blue"), ("size", "7")])
    );
    assert_eq!(change(&mut image, "size", Change::Delete), is(&[("colours", "blue")]));
    assert_eq!(change(&mut image, "size", Change::Delete), is(&[("colours", "blue")]));
    assert_eq!(change(&mut image, "other", set("1")), Err(ErrorCode::INVALID_CONFIG));
    assert_eq!(change(&mut image, "fixed", set("1")), Err(ErrorCode::INVALID_REQUEST));
    assert_eq!(change(&mut image, "size", Change::Set(None)), Err(ErrorCode::INVALID_REQUEST));
}

#[test]
fn lists_gain_and_lose_words_beginning_with_the_default() {
    let mut image = Image::default();
    assert_eq!(change(&mut image, "colours", append("blue")), is(&[("colours", "red,blue")]));
    assert_eq!(change(&mut image, "colours", append("blue,red")), is(&[("colours", "red,blue")]));
    assert_eq!(change(&mut image, "colours", subtract("red")), is(&[("colours", "blue")]));
    assert_eq!(change(&mut image, "colours", subtract("blue")), is(&[("colours", "")]));
    assert_eq!(change(&mut image, "colours", append("green")), Err(ErrorCode::INVALID_CONFIG));
    assert_eq!(change(&mut image, "size", append("1")), Err(ErrorCode::INVALID_CONFIG));
}

#[test]
fn one_wrong_change_leaves_all_as_it_was() {
    let mut image = Image::default();
    let twice = all(&mut image, vec![("size", set("1")), ("size", set("2"))], false);
    assert_eq!(twice.unwrap_err().code, ErrorCode::INVALID_REQUEST);
    let half = all(&mut image, vec![("size", set("1")), ("colours", set("green"))], false);
    assert_eq!(half.unwrap_err().code, ErrorCode::INVALID_CONFIG);
    assert_eq!(image, Image::default());
}

#[test]
fn replacing_takes_away_what_is_not_named_and_writes_no_more_than_changes() {
    let mut image = Image::default();
    all(&mut image, vec![("size", set("1")), ("colours", set("blue"))], false).unwrap();
    let changes = vec![("colours".to_owned(), set("blue"))];
    let alteration = Alteration { resource: resource(), changes, replaces: true };
    let records = alter(&image, &alteration, &Rules).unwrap();
    let gone =
        MetadataRecord::Config { resource: resource(), name: Arc::from("size"), value: None };
    assert_eq!(records, [gone]);
}
