use super::Fake;
use crate::holds::Holds;

impl Holds for Fake {}
