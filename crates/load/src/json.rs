//! The few fields that are wanted out of a JSON text, read in one pass without a tree.
//!
//! It is lenient where a measurement may be: numbers and words are told apart by their first
//! character, and strings are not checked for being UTF-8. It is strict where it matters: a text that
//! ends too early, or whose brackets do not match, is an error.

use std::borrow::Cow;

use memchr::memchr2;

/// Deepest nesting that is followed.
const DEEPEST: u32 = 64;

/// The text is no JSON, or ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON text")]
pub struct NotJson;

/// A string as it stands between its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    bytes: &'a [u8],
    escaped: bool,
}

impl<'a> Raw<'a> {
    /// Whether there is nothing between the quotes.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The text. What is no UTF-8, or an escape that stands for nothing, becomes U+FFFD.
    pub fn text(self) -> Cow<'a, str> {
        if !self.escaped {
            return String::from_utf8_lossy(self.bytes);
        }
        let quoted = [b"\"", self.bytes, b"\""].concat();
        match serde_json::from_slice(&quoted) {
            Ok(text) => Cow::Owned(text),
            Err(_) => String::from_utf8_lossy(self.bytes),
        }
    }
}

/// A place in a JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl<'a> Cursor<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a [u8]) -> Self {
        Self { rest: text, depth: 0 }
    }

    /// The first character that is no white space, which is not consumed.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        while let [first, rest @ ..] = self.rest {
            if !matches!(first, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*first);
            }
            self.rest = rest;
        }
        None
    }

    #[inline]
    fn eat(&mut self, wanted: u8) -> Result<(), NotJson> {
        match (self.peek(), self.rest) {
            (Some(found), [_, rest @ ..]) if found == wanted => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(NotJson),
        }
    }

    /// Walks over an object; `visit` is given each key, and consumes its value.
    ///
    /// # Errors
    /// No object here, or the visitor's.
    #[inline]
    pub fn object(
        &mut self,
        mut visit: impl FnMut(&[u8], &mut Self) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        self.open(b'{')?;
        if self.peek() == Some(b'}') {
            return self.close(b'}');
        }
        loop {
            let key = self.string()?;
            self.eat(b':')?;
            visit(key.bytes, self)?;
            if self.peek() != Some(b',') {
                return self.close(b'}');
            }
            self.eat(b',')?;
        }
    }

    /// Walks over an array; `visit` is given the number of each element, and consumes it.
    ///
    /// # Errors
    /// No array here, or the visitor's.
    #[inline]
    pub fn array(
        &mut self,
        mut visit: impl FnMut(usize, &mut Self) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        self.open(b'[')?;
        if self.peek() == Some(b']') {
            return self.close(b']');
        }
        for number in 0.. {
            visit(number, self)?;
            if self.peek() != Some(b',') {
                break;
            }
            self.eat(b',')?;
        }
        self.close(b']')
    }

    #[inline]
    fn open(&mut self, bracket: u8) -> Result<(), NotJson> {
        self.eat(bracket)?;
        self.depth += 1;
        if self.depth > DEEPEST { Err(NotJson) } else { Ok(()) }
    }

    #[inline]
    fn close(&mut self, bracket: u8) -> Result<(), NotJson> {
        self.eat(bracket)?;
        self.depth -= 1;
        Ok(())
    }

    /// A string.
    ///
    /// # Errors
    /// No string here, or one without end.
    #[inline]
    pub fn string(&mut self) -> Result<Raw<'a>, NotJson> {
        self.eat(b'"')?;
        let begin = self.rest;
        let (mut end, mut escaped) = (0, false);
        loop {
            let rest = begin.get(end..).ok_or(NotJson)?;
            end += memchr2(b'"', b'\\', rest).ok_or(NotJson)?;
            if begin.get(end) == Some(&b'"') {
                break;
            }
            escaped = true;
            end += 2;
        }
        let bytes = begin.get(..end).ok_or(NotJson)?;
        self.rest = begin.get(end + 1..).ok_or(NotJson)?;
        Ok(Raw { bytes, escaped })
    }

    /// A string, or nothing where another value stands; that is skipped.
    ///
    /// # Errors
    /// No value here.
    #[inline]
    pub fn string_or_skip(&mut self) -> Result<Option<Raw<'a>>, NotJson> {
        if self.peek() == Some(b'"') {
            return self.string().map(Some);
        }
        self.skip()?;
        Ok(None)
    }

    /// A number that is whole and not negative, or nothing where another value stands.
    ///
    /// # Errors
    /// No value here.
    #[inline]
    pub fn whole(&mut self) -> Result<Option<u64>, NotJson> {
        if !self.peek().is_some_and(|first| first.is_ascii_digit()) {
            self.skip()?;
            return Ok(None);
        }
        let mut value: Option<u64> = Some(0);
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            value =
                value.and_then(|value| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
            self.rest = rest;
        }
        if matches!(self.rest, [b'.' | b'e' | b'E', ..]) {
            self.word();
            return Ok(None);
        }
        Ok(value)
    }

    /// The text of the value that begins here; it is consumed.
    ///
    /// # Errors
    /// No value here.
    pub fn value(&mut self) -> Result<&'a [u8], NotJson> {
        self.peek();
        let begin = self.rest;
        self.skip()?;
        begin.get(..begin.len() - self.rest.len()).ok_or(NotJson)
    }

    /// Skips a value of any kind.
    ///
    /// # Errors
    /// No value here.
    #[inline]
    pub fn skip(&mut self) -> Result<(), NotJson> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.object(|_, value| value.skip()),
            Some(b'[') => self.array(|_, value| value.skip()),
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z' | b'N' | b'I') => {
                self.word();
                Ok(())
            }
            _ => Err(NotJson),
        }
    }

    /// A number, `true`, `false`, `null`, and what some servers write for no number.
    #[inline]
    fn word(&mut self) {
        while let [b'-' | b'+' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z', rest @ ..] =
            self.rest
        {
            self.rest = rest;
        }
    }

    /// Nothing but white space may follow.
    ///
    /// # Errors
    /// Something does.
    pub fn end(&mut self) -> Result<(), NotJson> {
        if self.peek().is_none() { Ok(()) } else { Err(NotJson) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn skipped(text: &[u8]) -> Result<(), NotJson> {
        let mut cursor = Cursor::new(text);
        cursor.skip()?;
        cursor.end()
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "[1,", "{\"a\":}", "\"a", "\"a\\\"", "[1]]", "{\"a\" 1}", "}", "{,}"]
        {
            assert_eq!(skipped(text.as_bytes()), Err(NotJson), "{text}");
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert_eq!(skipped(deep.as_bytes()), Err(NotJson));
        assert_eq!(skipped(br#" {"a":[1,-2.5e3,null,true,NaN],"b":{}} "#), Ok(()));
    }

    #[test]
    fn strings_and_numbers() {
        let text = |json: &str| Cursor::new(json.as_bytes()).string().unwrap().text().into_owned();
        assert_eq!(text(r#""a\"b\\\u00e9\ud83d\ude00""#), "a\"b\\é😀");
        assert_eq!(text(r#""\ud83d""#), r"\ud83d", "half a pair stands for nothing");
        let whole = |json: &str| Cursor::new(json.as_bytes()).whole().unwrap();
        assert_eq!(whole("42,"), Some(42));
        assert_eq!(whole("1.5"), None);
        assert_eq!(whole("-3"), None);
        assert_eq!(whole("null"), None);
        assert_eq!(whole("99999999999999999999"), None);
        let mut cursor = Cursor::new(b"1.5e3,7");
        assert_eq!(cursor.whole(), Ok(None));
        assert_eq!(cursor.eat(b','), Ok(()));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f32>().prop_map(|number| Value::from(f64::from(number))),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..6).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_a_whole_parser(value in json(), pretty: bool, cut in 0_usize..400) {
            let text = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            };
            prop_assert_eq!(skipped(text.as_bytes()), Ok(()));
            if let Value::String(string) = &value {
                let raw = Cursor::new(text.as_bytes()).string().unwrap();
                prop_assert_eq!(&raw.text(), string);
            }
            if matches!(value, Value::Object(_) | Value::Array(_) | Value::String(_)) {
                let cut = cut % text.len();
                prop_assert!(skipped(&text.as_bytes()[..cut]).is_err());
            }
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut cursor = Cursor::new(&bytes);
            if cursor.skip().is_ok() {
                prop_assert!(cursor.rest.len() < bytes.len());
            }
        }
    }
}
