//! Macros for tables of cases: each case is a test with its own name.

/// Makes a test of each function for each subject: `all` for tweed and the reference,
/// `tweed` for what only tweed promises. The latter are listed as ignored for the
/// reference.
macro_rules! subjects {
    (all: $($all:ident),+; $(tweed: $($own:ident),+;)?) => {
        mod tweed {
            $(#[test]
            fn $all() { super::$all(&$crate::fixture::Fixture::tweed()) })+
            $($(#[test]
            fn $own() { super::$own(&$crate::fixture::Fixture::tweed()) })+)?
        }
        mod ptp_host_local {
            $(#[test]
            fn $all() { super::$all(&$crate::fixture::Fixture::reference()) })+
            $($(#[test]
            #[ignore = "only tweed promises this"]
            fn $own() { super::$own(&$crate::fixture::Fixture::reference()) })+)?
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
        fn $name() { super::super::$test(&$crate::fixture::Fixture::$subject(), $version) }
    };
}

/// Makes a test of each case, which has a name and the arguments of the function.
/// `tweed` cases run against tweed, `all` cases also against the reference.
macro_rules! cases {
    ($check:ident; $(all { $($all:ident: $($a:expr),+;)* })? $(tweed { $($own:ident: $($o:expr),+;)* })?) => {
        mod tweed {
            use super::*;
            $($(#[test]
            fn $all() { $check(&$crate::fixture::Fixture::tweed(), $($a),+) })*)?
            $($(#[test]
            fn $own() { $check(&$crate::fixture::Fixture::tweed(), $($o),+) })*)?
        }
        mod ptp_host_local {
            use super::*;
            $($(#[test]
            fn $all() { $check(&$crate::fixture::Fixture::reference(), $($a),+) })*)?
            $($(#[test]
            #[ignore = "only tweed promises this"]
            fn $own() { $check(&$crate::fixture::Fixture::reference(), $($o),+) })*)?
        }
    };
}
