// SPDX-License-Identifier: Apache-2.0

package power

// Provenance says what was read, from which device, and how accurate it can be.
type Provenance struct {
	Source string `json:"source"` // Source as in Config
	// Address of the source: a directory, HOST:PORT, URL, or device file.
	Address string `json:"address,omitempty"`
	// Protocol, and how it is protected, such as "RMCP+, cipher suite 17".
	Protocol string `json:"protocol,omitempty"`
	// Device and Firmware are names that the source reports.
	Device   string `json:"device,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	// Covers says which parts of the host the power includes, and which it does not.
	Covers  string   `json:"covers,omitempty"`
	Sensors []Sensor `json:"sensors,omitempty"`
	// AccuracyPercent is the accuracy of a reading; 0 if not stated.
	AccuracyPercent float64 `json:"accuracyPercent,omitempty"`
	AccuracyFrom    From    `json:"accuracyFrom,omitempty"`
	// Interval is the configured time between readings, ns.
	Interval int64 `json:"intervalNs,omitempty"`
}

// Quantities of sensors.
const (
	Energy = "energy" // the sensor is a counter
	Power  = "power"  // the sensor is a gauge
)

// A Sensor is one of the sensors whose readings are added up.
type Sensor struct {
	Name string `json:"name"`
	// Path is what is read: a file, an OID, a URL with a property, or a command.
	Path     string `json:"path"`
	Quantity string `json:"quantity"` // Energy or Power
	Unit     string `json:"unit"`     // unit of one count at the source, such as "uJ" or "0.1 W"
	// ResolutionW or ResolutionJ is the smallest difference that a reading can show, or an
	// upper bound.
	ResolutionW    float64 `json:"resolutionW,omitempty"`
	ResolutionJ    float64 `json:"resolutionJ,omitempty"`
	ResolutionFrom From    `json:"resolutionFrom"`
	// UpdateInterval is the time between changes of the reading, or an upper bound, ns.
	UpdateInterval     int64 `json:"updateIntervalNs"`
	UpdateIntervalFrom From  `json:"updateIntervalFrom"`
	// Averages says that a reading is the mean since the reading before. It is false also if that is
	// not known. If false, the result may miss changes between two updates.
	Averages bool `json:"averages,omitempty"`
	// WrapJ is the energy at which a counter restarts from 0; 0 if not known.
	WrapJ float64 `json:"wrapJ,omitempty"`
}

// From says where a value comes from.
type From string

// Values of From.
const (
	FromConfig   From = "config"   // from the experiment's file
	FromSource   From = "source"   // reported by the sensor or defined by its protocol
	FromReadings From = "readings" // derived from the readings
	FromDefault  From = "default"  // assumed: a safe value for this kind of sensor
)

// Interval is a value with its lower and upper bound.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Uncertainty has the terms of the energy's half-width, in J. All terms except SamplingJ are
// bounds; SamplingJ is the half-width of a 95 % interval.
type Uncertainty struct {
	// ResolutionJ, because readings are rounded, by at most one resolution.
	ResolutionJ float64 `json:"resolutionJ"`
	// EdgesJ, because a reading is up to one update interval old, takes time, and is not made exactly
	// at the window's ends.
	EdgesJ float64 `json:"edgesJ"`
	// SamplingJ, because samples that are not averages miss changes between them.
	SamplingJ float64 `json:"samplingJ"`
	// GapsJ, because readings failed.
	GapsJ float64 `json:"gapsJ"`
	// AccuracyJ, from the sensor's stated accuracy; 0 if not stated.
	AccuracyJ float64 `json:"accuracyJ"`
}

func (u Uncertainty) sum() float64 {
	return u.ResolutionJ + u.EdgesJ + u.SamplingJ + u.GapsJ + u.AccuracyJ
}

// Methods of an Estimate.
const (
	Counter = "difference of energy counters"
	Samples = "mean of power samples over time"
)

// An Estimate is the energy of the window, with bounds.
type Estimate struct {
	Method      string      `json:"method"` // Counter or Samples
	Energy      Interval    `json:"energyJ"`
	Power       Interval    `json:"powerW"` // mean over the window
	Uncertainty Uncertainty `json:"uncertainty"`
}

// Result is the power of one window of time.
type Result struct {
	Provenance Provenance `json:"provenance"`
	// StartMono is CLOCK_MONOTONIC at the window's start, Duration its length, both in ns.
	StartMono int64 `json:"startMonoNs"`
	Duration  int64 `json:"durationNs"`

	// NotMeasured is the reason why there is no Estimate; "" if there is one.
	NotMeasured string `json:"notMeasured,omitempty"`
	// Needed is the length of a window that is long enough, ns. It is set if a window that is too
	// short is the reason for NotMeasured or for a warning.
	Needed int64 `json:"neededDurationNs,omitempty"`

	*Estimate
	// CrossCheck is a second estimate, if the source has both counters and gauges. The narrower of the
	// two is the Estimate.
	CrossCheck *Estimate `json:"crossCheck,omitempty"`

	// Readings is how many readings were taken, and Missed how many failed. Updates is how many values
	// the slowest sensor can have had in the window.
	Readings int   `json:"readings"`
	Missed   int   `json:"missed"`
	Updates  int64 `json:"updates"`
	Wraps    int   `json:"wraps"` // number of wraps of all counters
	// FirstError is the error of the first reading that failed.
	FirstError string `json:"firstError,omitempty"`

	// Timeline has the power over time, at most 4096 samples. For counters a sample is the mean power
	// since the sample before; for gauges it is the reading.
	Timeline []Sample `json:"timeline,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}

// Sample is the power at a time.
type Sample struct {
	Mono  int64   `json:"monoNs"` // CLOCK_MONOTONIC
	Power float64 `json:"powerW"`
}
