// SPDX-License-Identifier: Apache-2.0

// Package power measures a host's electrical power during a measurement, and states how uncertain
// the value is.
//
// A Source is one of: RAPL counters (powercap), hwmon sensors, a BMC by IPMI DCMI or Redfish, a
// Raritan PDU or any other PDU by SNMP, or none. With none, the result says that power was not
// measured. Measure reads the source before, during and after the work. It returns the energy of
// the window in J and its mean power in W, each with bounds. Derive divides the work by the energy:
// Gbit/s per W, joules per request. See Example.
//
// Package power refuses to state a number in these cases. The window has fewer than ten updates of
// the sensor or ten steps of a counter; the error then names a window that is long enough. More
// than half of the readings failed. The sensor was silent at the end. A counter was reset.
//
// It changes nothing on any device. It asks a BMC only for user privilege unless configured
// otherwise. It follows no link to another host, and keeps credentials out of results and errors.
// It does not divide power among processes: the power is that of the host or of the PDU.
//
// # What a result means
//
// Sources measure different parts of a host. RAPL counts processors and memory: no network card, no
// fan, no loss in a power supply. A BMC or a PDU measures the whole host. Provenance.Covers says
// which parts. Do not compare Gbit/s per W of one source with that of another. A host with two
// power supplies has two inlets or outlets: name both, and Measure adds them up.
//
// If the source has an energy counter, the energy is the difference of two readings (Method
// Counter). Otherwise it is the integral of the power samples (Method Samples). If a PDU has both,
// Measure reads both: the narrower interval is the Estimate, the other one the CrossCheck. If the
// two intervals do not overlap, the result warns that the source contradicts itself.
//
// # Bounds
//
// The half-width of the interval is the sum of the terms below (Uncertainty). All terms except
// SamplingJ are bounds:
//
//   - resolution. A counter's difference has an error of less than one step, in a window
//     of any length. A gauge may round each reading in the same direction, so an
//     error of 1 W stays 1 W in any window. A PDU that counts in 10 W has 3 % at 300 W.
//   - edges. A reading is up to one update interval old, takes time to fetch, and is
//     not made exactly at the window's ends. For a counter, the bound is the
//     highest power seen times that time. For a gauge, it is the range of the
//     readings times the sum of twice the update interval and the polling interval.
//   - sampling. A gauge that reads instants misses changes between them. The 95 %
//     interval comes from the differences between successive updates (the error
//     of systematic sampling): a slow ramp adds little to it, jumps add much.
//     For sensors that report an average it is 0.
//   - gaps. Readings that failed.
//   - accuracy. No protocol reports how far a sensor is from the true value. The data
//     sheet does: set accuracy. Without it the result has a warning, and the
//     bounds are those of the reading, not those of the true power.
//
// Resolution and update interval come from the experiment's file, else from the sensor, else from
// the readings (the smallest and the median change; a counter of this machine is watched for 50 ms
// beforehand). If all of these lack a value, package power assumes a safe one.
// Sensor.ResolutionFrom and UpdateIntervalFrom say where the values come from. The assumed
// intervals are 1 ms for RAPL (Intel's Software Developer's Manual, volume 3B, 15.10), 3 s for
// Raritan PDUs, 2 s for hwmon and 10 s for everything else. The assumed resolution is 1 W if the
// protocol does not define one.
//
// An interval wider than ±5 % gets a warning. The warning names the window that would make the
// interval that narrow, or the uncertainty that remains in any window.
//
// # Sources and their traps
//
//   - rapl: powercap shows dram inside package, but package's energy does not include
//     dram's. psys includes everything. intel-rapl-mmio is the same package again.
//     Overlapping domains are refused (domains: [package, core]) or left out.
//     Counters wrap after minutes at max_energy_range_uj. A step back that is not a
//     wrap is a reset. Since Linux 5.10 only root can read them (CVE-2020-8694).
//   - hwmon: drivers document neither wraps nor which part of the host a sensor
//     measures. So the file names chip and sensors. A step back counts as a wrap at
//     2^32 only if the power stays plausible, with a warning.
//   - ipmi: DCMI Get Power Reading, "current power", whole watts, over RMCP+ with
//     cipher suite 17 or 3, or /dev/ipmiN. If a BMC requires more than user
//     privilege, it says so (set privilege). A BMC may claim to sample every second
//     a value that it updates every 10 s. 0 W and "not active" are errors.
//   - redfish: Chassis/…/EnvironmentMetrics, else Chassis/…/Power. PowerMetrics'
//     averages are over minutes and not used. Several chassis that report power
//     may contain each other, so the file must name them.
//   - raritan: PDU2-MIB, with the decimal digits and units that the PDU itself
//     reports; active power and, if the PDU has it, active energy.
//   - snmp: model apc (PowerNet-MIB, 10 W and 0.1 kWh), or OIDs with unit and
//     scale. A Counter32 wraps at 2^32. Any other step back is a reset.
//
// # Credentials
//
// Credentials names a file that only its owner, this user or root, can read (0600 or 0400; no
// link), or "env:PREFIX". The file has lines NAME=VALUE. NAME is user or password (ipmi, redfish,
// SNMPv3), privacyPassword (SNMPv3, password if absent) or community (SNMPv2c). The environment
// variables are PREFIX_USER, PREFIX_PASSWORD, PREFIX_PRIVACYPASSWORD and PREFIX_COMMUNITY.
//
// Redfish verifies the BMC's certificate. ca-file names the authority. skip-verify puts a warning
// into the result. SNMP is version 3 with authentication and encryption unless the experiment asks
// for less; then Provenance.Protocol in the result shows it.
package power
