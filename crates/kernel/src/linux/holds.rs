use super::Linux;
use crate::holds::Holds;

impl Holds for Linux {}
