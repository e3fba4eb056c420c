//! What each profile allows, and the defaults that follow from it.

use super::session::{Limits, Network, Profile};

/// What a profile means for the sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Rights {
    /// Forbid gaining privileges through set-user-id programs.
    pub no_new_privileges: bool,
    /// Capabilities taken away, in the kernel's names without `CAP_`; `ALL` is every one.
    pub cap_drop: &'static [&'static str],
    /// Limits where neither the user nor the template says otherwise.
    pub limits: Limits,
    /// The network where neither the user nor the template says otherwise.
    pub network: Network,
}

/// What `profile` allows. `moderate` holds a coding agent and its build tools (8 GiB, 4,096 tasks: the default
/// `TasksMax` of a small systemd user session is of this order) while a fork bomb or a leak ends inside the sandbox;
/// `restrictive` is for running what one does not trust.
pub fn rights(profile: Profile) -> Rights {
    match profile {
        Profile::Permissive => Rights {
            no_new_privileges: false,
            cap_drop: &[],
            limits: Limits::default(),
            network: Network::Bridge,
        },
        Profile::Moderate => Rights {
            no_new_privileges: true,
            cap_drop: &["NET_RAW"],
            limits: Limits { cpu_millis: None, memory_bytes: Some(8 << 30), pids: Some(4096) },
            network: Network::Bridge,
        },
        Profile::Restrictive => Rights {
            no_new_privileges: true,
            cap_drop: &["ALL"],
            limits: Limits { cpu_millis: Some(2000), memory_bytes: Some(2 << 30), pids: Some(512) },
            network: Network::None,
        },
    }
}

/// The limits that hold: the user's, else the template's, else the profile's.
pub fn effective(user: &Limits, template: &Limits, profile: Profile) -> Limits {
    let base = rights(profile).limits;
    Limits {
        cpu_millis: user.cpu_millis.or(template.cpu_millis).or(base.cpu_millis),
        memory_bytes: user.memory_bytes.or(template.memory_bytes).or(base.memory_bytes),
        pids: user.pids.or(template.pids).or(base.pids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_wins_over_the_template_and_the_template_over_the_profile() {
        let user = Limits { cpu_millis: Some(500), ..Limits::default() };
        let template = Limits { cpu_millis: Some(900), memory_bytes: Some(1), ..Limits::default() };
        let got = effective(&user, &template, Profile::Moderate);
        assert_eq!(got, Limits { cpu_millis: Some(500), memory_bytes: Some(1), pids: Some(4096) });
    }

    #[test]
    fn each_profile_takes_away_at_least_what_the_looser_one_does() {
        assert!(
            rights(Profile::Moderate).no_new_privileges && rights(Profile::Restrictive).no_new_privileges
        );
        assert_eq!(rights(Profile::Moderate).cap_drop, ["NET_RAW"]);
        assert_eq!(rights(Profile::Restrictive).cap_drop, ["ALL"]);
        assert_eq!(rights(Profile::Restrictive).network, Network::None);
    }
}
