//! Messages of the API with a row for each field that is used: its name, how it is written,
//! its number in protobuf, and its name in JSON where that is not the same in camel case.

/// Defines structs that protobuf, JSON and YAML are decoded into. A row is of a `text` or
/// `texts`, a `number`, a message (`one`), which may not be more than an object in JSON
/// (`object`), or a list of those (`objects`). A field with attributes of its own stays as it
/// is.
macro_rules! message {
    () => {};
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($rows:tt)* } $($more:tt)*) => {
        message!(@ [$(#[$meta])* $vis struct $name] [] $($rows)*);
        message!($($more)*);
    };
    (@ [$($head:tt)*] [$($done:tt)*]) => {
        #[derive(prost::Message, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        $($head)* { $($done)* }
    };
    (@ $head:tt [$($done:tt)*] $(#[$own:meta])+ $own_vis:vis $field:ident: $type:ty,
     $($rest:tt)*) => {
        message!(@ $head [$($done)* $(#[$own])+ $own_vis $field: $type,] $($rest)*);
    };
    (@ $head:tt $done:tt $field:ident: text = $tag:tt $(as $json:tt)?, $($rest:tt)*) => {
        message!(@row $head $done [bytes = "vec"] "crate::kinds::bytes",
            $field: Vec<u8>, $tag, [$($json)?], $($rest)*);
    };
    (@ $head:tt $done:tt $field:ident: texts = $tag:tt $(as $json:tt)?, $($rest:tt)*) => {
        message!(@row $head $done [bytes = "vec", repeated] "crate::kinds::texts",
            $field: Vec<Vec<u8>>, $tag, [$($json)?], $($rest)*);
    };
    (@ $head:tt $done:tt $field:ident: number = $tag:tt, $($rest:tt)*) => {
        message!(@row $head $done [int32] "crate::kinds::number", $field: i32, $tag, [], $($rest)*);
    };
    (@ $head:tt [$($done:tt)*] $field:ident: one($type:ty) = $tag:tt, $($rest:tt)*) => {
        message!(@ $head [$($done)* #[prost(message, optional, tag = $tag)]
            $field: Option<$type>,] $($rest)*);
    };
    (@ $head:tt $done:tt $field:ident: object($type:ty) = $tag:tt $(as $json:tt)?, $($rest:tt)*) => {
        message!(@row $head $done [message, optional] "crate::kinds::object",
            $field: Option<$type>, $tag, [$($json)?], $($rest)*);
    };
    (@ $head:tt $done:tt $field:ident: objects($type:ty) = $tag:tt, $($rest:tt)*) => {
        message!(@row $head $done [message, repeated] "crate::kinds::objects",
            $field: Vec<$type>, $tag, [], $($rest)*);
    };
    (@row $head:tt [$($done:tt)*] [$($prost:tt)*] $read:tt, $field:ident: $type:ty, $tag:tt,
     [$($json:tt)?], $($rest:tt)*) => {
        message!(@ $head [$($done)* #[prost($($prost)*, tag = $tag)]
            #[serde(deserialize_with = $read $(, rename = $json)?)]
            $field: $type,] $($rest)*);
    };
}
