//! The programs on the running kernel, and the object against its source.

mod histograms;
mod live;
mod object;
mod truths;
