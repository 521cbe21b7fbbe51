//! The mails' reproducers, run through the policies as a user of the crate does.

mod freegap;
mod pbobench;
