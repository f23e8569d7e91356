//! Attributes of the elements of sets and maps, of `linux/netfilter/nf_tables.h`.

/// `NFTA_LIST_ELEM`: one element in a list of them.
pub const ITEM: u16 = 1;
/// `NFTA_SET_ELEM_KEY`.
pub const KEY: u16 = 1;
/// `NFTA_SET_ELEM_DATA`.
pub const DATA: u16 = 2;
/// `NFTA_SET_ELEM_FLAGS`.
pub const FLAGS: u16 = 3;
/// `NFTA_SET_ELEM_TIMEOUT`: milliseconds.
pub const TIMEOUT: u16 = 4;
/// `NFTA_SET_ELEM_KEY_END`.
pub const KEY_END: u16 = 10;
/// `NFTA_DATA_VALUE`.
pub const VALUE: u16 = 1;
/// `NFT_SET_ELEM_INTERVAL_END`, a flag.
pub const INTERVAL_END: u32 = 1;
