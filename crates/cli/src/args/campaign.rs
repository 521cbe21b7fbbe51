//! Flags of `campaign`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A plan, in TOML:
  occasions = 10                 # per side, 5 to 60
  output = \"/var/tmp/thp\"        # an empty folder
  probe = \"placement --runs 5\"   # or command = \"CMD\" (sh -c), whose standard
                                 # output stopgap compare reads
  reboot = \"systemctl reboot\"    # without it all happens in one boot
  [before]
  name = \"as it is\"
  [after]
  name = \"no huge pages\"
  boot = \"grub-reboot 'no huge pages'\"           # selects the next boot
  command-line = [\"transparent_hugepage=never\"]  # only this side's boots have
                                                 # these words

More of a side: kernel = \"RELEASE\" (uname -r of its boots), settings =
{ \"vm.swappiness\" = 10 } (sysctls, or files below /proc/sys and /sys), set and
undo = \"CMD\" (before and after each measurement).
More of the plan: name; settle = \"60s\" (idle before it measures); takes = \"2m\"
(a measurement; 5 times as long is a failure); seed; put-back = \"CMD\" (once, at
the end); endpoint = [\"median\"], series and margin as of stopgap compare.

Commands see STOPGAP_SIDE (before, after) and STOPGAP_OCCASION (a number).
docs/compare.md says how to read the answer.")]
pub(crate) struct Campaign {
    #[command(subcommand)]
    pub(crate) step: CampaignStep,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum CampaignStep {
    /// Check a plan and begin it; nothing runs yet.
    Start {
        /// Plan, in TOML (see stopgap campaign --help).
        #[arg(value_name = "PLAN")]
        plan: PathBuf,
        /// Check the plan, print order, time and what it can find, and begin nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        place: CampaignPlace,
    },
    /// Do what is due: measure, then ask for the next boot (for stopgap-campaign.service).
    Run {
        #[command(flatten)]
        place: CampaignPlace,
    },
    /// Show what is done, and how long the rest takes.
    Status {
        #[command(flatten)]
        place: CampaignPlace,
    },
    /// End the campaign, put everything back and compare what there is.
    Stop {
        #[command(flatten)]
        place: CampaignPlace,
    },
}

impl CampaignStep {
    pub(crate) fn leaves_all_as_it_is(&self) -> bool {
        matches!(
            self,
            CampaignStep::Start { dry_run: true, .. } | CampaignStep::Status { .. }
        )
    }
}

/// Where a campaign keeps its state.
#[derive(Debug, clap::Args)]
pub(crate) struct CampaignPlace {
    /// Keep the campaign's state in this directory [default: of root /var/lib/stopgap/campaign,
    /// else $XDG_STATE_HOME/stopgap/campaign or ~/.local/state/stopgap/campaign].
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}
