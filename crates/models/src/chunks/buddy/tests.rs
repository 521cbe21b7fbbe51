mod bad_input;
mod faults;
mod limits;
mod rules;
mod steps;
