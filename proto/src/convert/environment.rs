//! The software and the device behind a measurement.

use super::{to_i32, unsigned};
use crate::error::{Invalid, in_range};
use crate::measure::environment::{DeviceSample, Environment};
use crate::wire::v1;

impl From<Environment> for v1::Environment {
    fn from(environment: Environment) -> Self {
        let Environment {
            device_kind,
            libtorch_version,
            cuda_version,
            driver_version,
            loadmaster_version,
            threads,
            command,
            framework,
            framework_version,
            before,
            after,
            contended,
            cores,
            others_share,
            oversubscribed,
        } = environment;
        Self {
            device_kind,
            libtorch_version,
            cuda_version,
            driver_version,
            loadmaster_version,
            threads: to_i32(threads),
            command,
            framework,
            framework_version,
            before: before.map(Into::into),
            after: after.map(Into::into),
            contended,
            cores: to_i32(cores),
            others_share,
            oversubscribed,
        }
    }
}

impl TryFrom<v1::Environment> for Environment {
    type Error = Invalid;

    fn try_from(wire: v1::Environment) -> Result<Self, Invalid> {
        let v1::Environment {
            device_kind,
            libtorch_version,
            cuda_version,
            driver_version,
            loadmaster_version,
            threads,
            command,
            framework,
            framework_version,
            before,
            after,
            contended,
            cores,
            others_share,
            oversubscribed,
        } = wire;
        let sample = |field: &str, wire: Option<v1::DeviceSample>| {
            wire.map(DeviceSample::try_from).transpose().map_err(|invalid| invalid.under(field))
        };
        Ok(Self {
            device_kind,
            libtorch_version,
            cuda_version,
            driver_version,
            loadmaster_version,
            threads: unsigned("threads", threads)?,
            command,
            framework,
            framework_version,
            before: sample("before", before)?,
            after: sample("after", after)?,
            contended,
            cores: unsigned("cores", cores)?,
            others_share: others_share.map(|share| in_range("others_share", share, 0.0..=1.0)).transpose()?,
            oversubscribed,
        })
    }
}

impl From<DeviceSample> for v1::DeviceSample {
    fn from(sample: DeviceSample) -> Self {
        let DeviceSample { sm_clock_mhz, memory_clock_mhz, temperature_celsius, throttle_reasons } = sample;
        Self {
            sm_clock_mhz: sm_clock_mhz.map(to_i32),
            memory_clock_mhz: memory_clock_mhz.map(to_i32),
            temperature_celsius: temperature_celsius.map(to_i32),
            throttle_reasons,
        }
    }
}

impl TryFrom<v1::DeviceSample> for DeviceSample {
    type Error = Invalid;

    fn try_from(wire: v1::DeviceSample) -> Result<Self, Invalid> {
        let v1::DeviceSample { sm_clock_mhz, memory_clock_mhz, temperature_celsius, throttle_reasons } = wire;
        let number = |field: &str, value: Option<i32>| value.map(|value| unsigned(field, value)).transpose();
        Ok(Self {
            sm_clock_mhz: number("sm_clock_mhz", sm_clock_mhz)?,
            memory_clock_mhz: number("memory_clock_mhz", memory_clock_mhz)?,
            temperature_celsius: number("temperature_celsius", temperature_celsius)?,
            throttle_reasons,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_the_wire() {
        let sample = |clock: u32| DeviceSample {
            sm_clock_mhz: Some(clock),
            memory_clock_mhz: None,
            temperature_celsius: Some(40),
            throttle_reasons: vec!["sw_power_cap".to_owned()],
        };
        let environment = Environment {
            device_kind: "NVIDIA H200".to_owned(),
            libtorch_version: String::new(),
            cuda_version: "13.0".to_owned(),
            driver_version: "580.1".to_owned(),
            loadmaster_version: "0.1.0".to_owned(),
            threads: 3,
            command: "megatron".to_owned(),
            framework: "torch".to_owned(),
            framework_version: "2.11.0".to_owned(),
            before: Some(sample(1_980)),
            after: Some(sample(1_755)),
            contended: true,
            cores: 8,
            others_share: Some(0.1 + 0.2),
            oversubscribed: true,
        };
        let wire = v1::Environment::from(environment.clone());
        assert_eq!(Environment::try_from(wire.clone()), Ok(environment));
        let bent = v1::Environment {
            before: Some(v1::DeviceSample { sm_clock_mhz: Some(-1), ..v1::DeviceSample::default() }),
            ..wire
        };
        let error = Environment::try_from(bent).unwrap_err();
        assert_eq!(error.violations()[0].field, "before.sm_clock_mhz");
        for share in [-0.1, 1.5, f64::NAN] {
            let bent = v1::Environment { others_share: Some(share), ..v1::Environment::default() };
            let error = Environment::try_from(bent).unwrap_err();
            assert_eq!(error.violations()[0].field, "others_share");
        }
    }
}
