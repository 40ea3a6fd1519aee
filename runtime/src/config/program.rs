//! A configuration that a program makes.

use std::ffi::OsStr;

use super::{Config, ConfigError, Origin, VARIABLES, nearest};

impl Config {
    /// Sets a variable by its name, to a value as it would stand in the environment. Blank: the built-in value.
    ///
    /// ```
    /// use longarm::config::{Config, ConfigError};
    ///
    /// let mut config = Config::default();
    /// config.set("LONGARM_SEND_RING_BYTES", "2m")?;
    /// assert_eq!(config.send_ring_bytes, 2 << 20);
    /// let refused = config.set("LONGARM_SEND_RING_BYTES", "2");
    /// assert!(matches!(refused, Err(ConfigError::Refused { name: "LONGARM_SEND_RING_BYTES", .. })));
    /// assert_eq!(config.send_ring_bytes, 2 << 20);
    /// # Ok::<(), longarm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::Unknown`], [`ConfigError::Refused`]; the configuration is as before.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let index = VARIABLES.iter().position(|variable| variable.name == name);
        let index = index.ok_or_else(|| ConfigError::Unknown { name: name.to_owned(), nearest: nearest(name) })?;
        if value.trim().is_empty() {
            let mut built_in = Config::default();
            let value = VARIABLES[index].slot.show(&mut built_in);
            return self.take_value(index, OsStr::new(&value), Origin::Default);
        }
        self.take_value(index, OsStr::new(value), Origin::Program)
    }

    /// Takes what the program has set as fields: it has to be what the variables accept, and counts as set by hand where
    /// it is not the built-in value.
    ///
    /// # Errors
    /// [`ConfigError::Refused`], for the first that cannot be used.
    pub(crate) fn settle_fields(&mut self) -> Result<(), ConfigError> {
        let mut built_in = Config::default();
        // The table leads to mutable fields, and reads values into them: both on a copy.
        let mut copy = self.clone();
        for (index, variable) in VARIABLES.iter().enumerate() {
            let value = variable.slot.show(&mut copy);
            copy.take_value(index, OsStr::new(&value), Origin::Program)?;
            if self.origins[index] == Origin::Default && value != variable.slot.show(&mut built_in) {
                self.origins[index] = Origin::Program;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(config: &Config, name: &str) -> Origin {
        config.entries().into_iter().find(|entry| entry.name == name).expect("the name is in the table").origin
    }

    #[test]
    fn a_field_that_a_program_sets_counts_as_set_by_hand() {
        let mut config = Config { spin_us: 7, socket_buffer_bytes: 1 << 20, ..Config::default() };
        config.settle_fields().unwrap();
        assert!(config.is_set("LONGARM_SPIN_US") && config.is_set("LONGARM_SOCKET_BUFFER_BYTES"));
        assert!(!config.is_set("LONGARM_EAGER_BYTES"));
        assert_eq!(origin(&config, "LONGARM_SPIN_US"), Origin::Program);
        config.settle_spin(9, 1);
        assert_eq!(config.spin_us, 7);
    }

    #[test]
    fn the_built_in_value_counts_as_set_by_hand_if_it_is_set_by_name() {
        let mut config = Config::default();
        config.set("LONGARM_SPIN_US", "100").unwrap();
        config.set("LONGARM_SOCKET_BUFFER_BYTES", "0").unwrap();
        config.settle_fields().unwrap();
        config.settle_spin(9, 1);
        assert_eq!(config.spin_us, 100);
        assert!(config.is_set("LONGARM_SOCKET_BUFFER_BYTES"));
        config.set("LONGARM_SPIN_US", " ").unwrap();
        config.settle_spin(9, 1);
        assert_eq!(config.spin_us, 0);
    }

    #[test]
    fn a_field_that_no_variable_accepts_is_refused_by_its_variables_name() {
        let text = |mut config: Config| config.settle_fields().unwrap_err().to_string();
        let refused = text(Config { eager_bytes: 1 << 30, ..Config::default() });
        assert!(refused.starts_with("LONGARM_EAGER_BYTES is set to \"1g\""), "{refused}");
        let refused = text(Config { half_open_max: 0, ..Config::default() });
        assert!(refused.contains("LONGARM_HALF_OPEN_MAX"), "{refused}");
    }

    #[test]
    fn what_was_set_in_the_environment_stays_so() {
        let variables = [("LONGARM_SPIN_US".into(), "3".into())];
        let mut config = Config::from_variables(variables, &[]).unwrap();
        config.settle_fields().unwrap();
        assert_eq!(origin(&config, "LONGARM_SPIN_US"), Origin::Environment);
    }

    #[test]
    fn a_name_that_does_not_exist_is_an_error_with_the_nearest() {
        let error = Config::default().set("LONGARM_EAGER_BYTE", "1").unwrap_err().to_string();
        assert!(error.ends_with("LONGARM_EAGER_BYTE; is it LONGARM_EAGER_BYTES?"), "{error}");
        assert!(!Config::default().set("HOME", "1").unwrap_err().to_string().contains("is it"));
    }
}
