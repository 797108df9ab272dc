//! `result.json`: all that a replay found, for programs and for a later comparison.

use super::gates::{Comparison, Gates, Verdict};
use super::metrics::{Options, Summary};
use super::Run;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The schema of the files that are written and read. It changes when a name or a meaning does; what is
/// added does not change it.
pub const SCHEMA: u32 = 1;

/// What `result.json` holds. The names and units of its fields are those of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// [`SCHEMA`]
    pub schema: u32,
    /// Who wrote it.
    pub program: Program,
    /// The circumstances.
    pub run: Run,
    /// What was asked of the evaluation.
    pub options: Options,
    /// What came of it.
    pub summary: Summary,
    /// Pose of the frame of the truth in the map, if one was asked for: x y z (m), quaternion x y z w.
    pub map_t_truth: Option<[f64; 7]>,
    /// What was asked of the drive.
    pub gates: Gates,
    /// Whether it has that.
    pub verdicts: Vec<Verdict>,
    /// This drive beside the baseline; empty without one.
    pub comparison: Vec<Comparison>,
}

/// A version of flashreg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// The revision of its source, if FLASHREG_REVISION said so when it was compiled.
    pub revision: Option<String>,
}

impl Program {
    /// This one.
    pub fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: option_env!("FLASHREG_REVISION").map(str::to_owned),
        }
    }
}

/// A file that is no result of ours.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// It is not JSON, or a field is missing.
    #[error("{0}: no result.json of flashreg: {1}")]
    Json(PathBuf, serde_json::Error),
    /// It is of another time.
    #[error("{0}: schema {1}, this program reads {SCHEMA}")]
    Schema(PathBuf, u32),
}

impl ResultFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ResultError> {
        /// What is read first: the rest may be of another schema.
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let text = std::fs::read_to_string(path).map_err(|e| ResultError::Io(path.to_owned(), e))?;
        let json = |e| ResultError::Json(path.to_owned(), e);
        let Head { schema } = serde_json::from_str(&text).map_err(json)?;
        match schema {
            SCHEMA => serde_json::from_str(&text).map_err(json),
            other => Err(ResultError::Schema(path.to_owned(), other)),
        }
    }

    /// The gates that failed and the numbers that became worse, a sentence each.
    pub fn failures(&self) -> Vec<String> {
        let gates = self.verdicts.iter().filter(|v| !v.passed).map(ToString::to_string);
        let regressions = self.comparison.iter().filter(|c| !c.passed).map(ToString::to_string);
        gates.chain(regressions).collect()
    }
}
