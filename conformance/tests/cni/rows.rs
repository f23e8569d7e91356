//! A row is a test, and its name says which.

/// Makes a test of each function, once per subject: `all` against tweed and the
/// reference; `tweed`, what only tweed promises, against tweed. For the
/// reference those are listed as ignored.
macro_rules! subjects {
    (all: $($all:ident),+; $(tweed: $($own:ident),+;)?) => {
        mod tweed {
            $(#[test]
            fn $all() { super::$all(&$crate::bench::Bench::tweed()) })+
            $($(#[test]
            fn $own() { super::$own(&$crate::bench::Bench::tweed()) })+)?
        }
        mod ptp_host_local {
            $(#[test]
            fn $all() { super::$all(&$crate::bench::Bench::reference()) })+
            $($(#[test]
            #[ignore = "only tweed promises this"]
            fn $own() { super::$own(&$crate::bench::Bench::reference()) })+)?
        }
    };
}

/// Makes a test of each function for each version and each subject.
macro_rules! versions {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            mod tweed { versions!(@ $test tweed); }
            mod ptp_host_local { versions!(@ $test reference); }
        })*
    };
    (@ $test:ident $subject:ident) => {
        versions!(@@ $test $subject v0_3_1 "0.3.1");
        versions!(@@ $test $subject v0_4_0 "0.4.0");
        versions!(@@ $test $subject v1_0_0 "1.0.0");
        versions!(@@ $test $subject v1_1_0 "1.1.0");
    };
    (@@ $test:ident $subject:ident $name:ident $version:literal) => {
        #[test]
        fn $name() { super::super::$test(&$crate::bench::Bench::$subject(), $version) }
    };
}

/// Makes a test of each row: its name, and what the function is given of it.
/// `tweed` rows run against tweed; `all` rows against the reference too.
macro_rules! rows {
    ($check:ident; $(all { $($all:ident: $($a:expr),+;)* })? $(tweed { $($own:ident: $($o:expr),+;)* })?) => {
        mod tweed {
            use super::*;
            $($(#[test]
            fn $all() { $check(&$crate::bench::Bench::tweed(), $($a),+) })*)?
            $($(#[test]
            fn $own() { $check(&$crate::bench::Bench::tweed(), $($o),+) })*)?
        }
        mod ptp_host_local {
            use super::*;
            $($(#[test]
            fn $all() { $check(&$crate::bench::Bench::reference(), $($a),+) })*)?
            $($(#[test]
            #[ignore = "only tweed promises this"]
            fn $own() { $check(&$crate::bench::Bench::reference(), $($o),+) })*)?
        }
    };
}
