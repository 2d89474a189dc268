// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"fmt"

	"github.com/niclane/niclane/bench/part/thread"
)

// A Source can be measured several times, one after another or at the same time.
type Source interface {
	// Describe says what will be read, as far as Config tells; it contacts nothing. A Result's
	// Provenance has the rest.
	Describe() Provenance
	// Start finds the sensors, takes a first reading and begins the window.
	// Without an error, the Meter must be stopped.
	Start(ctx context.Context) (Meter, error)
}

// A Meter is a window that has started.
type Meter interface {
	// Stop ends the window. Errors after Start are in the Result (NotMeasured, Warnings), so
	// that the measured work is not lost.
	Stop(ctx context.Context) Result
}

// Open checks c, reports every error in it, and reads the credentials that it names. It
// contacts no sensor and opens no connection.
func Open(c Config) (Source, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := c.open()
	if err != nil {
		return nil, fmt.Errorf("power: %s: %w", c.Source, err)
	}
	return &source{c, s}, nil
}

// Validate reports every error in c. It reads no file.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// kind is implemented by each kind of source.
type kind interface {
	describe() Provenance
	// find finds the sensors and prepares to read them.
	find(ctx context.Context) (sensorSet, error)
}

// A sensorSet is a device and its description.
type sensorSet struct {
	dev      device
	prov     Provenance
	gears    []gear
	warnings []string
}

func (c Config) open() (kind, error) {
	switch c.Source {
	case RAPL:
		return rapl{c}, nil
	case Hwmon:
		return hwmon{c}, nil
	case IPMI:
		return openIPMI(c)
	case Redfish:
		return openRedfish(c)
	case Raritan, SNMP:
		return openSNMP(c)
	}
	return none{}, nil
}

type source struct {
	c Config
	k kind
}

func (s *source) Describe() Provenance { return s.k.describe() }

func (s *source) Start(ctx context.Context) (Meter, error) {
	if _, ok := s.k.(none); ok {
		return none{from: thread.Monotonic()}, nil
	}
	f, err := s.k.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("power: %s: %w", s.c.Source, err)
	}
	m, err := start(ctx, s.c, f.dev, f.prov, f.gears, f.warnings)
	if err != nil {
		return nil, fmt.Errorf("power: %s: first reading: %w", s.c.Source, err)
	}
	return m, nil
}

// Measure runs during and measures its power. An error of Start means that during did not run.
// Otherwise the error is that of during, and the Result covers the time until it returned. To
// measure several sources in parallel, nest Measure.
func Measure(ctx context.Context, src Source, during func() error) (Result, error) {
	m, err := src.Start(ctx)
	if err != nil {
		return Result{Provenance: src.Describe(), NotMeasured: err.Error()}, err
	}
	stopped := false
	// A panic in during must not leave a session open on a BMC.
	defer func() {
		if !stopped {
			m.Stop(ctx)
		}
	}()
	err = during()
	stopped = true
	return m.Stop(ctx), err
}

// none is the source that measures nothing.
type none struct{ from int64 }

func (none) describe() Provenance                    { return Provenance{Source: None} }
func (none) find(context.Context) (sensorSet, error) { panic("source none has no sensors") }

func (n none) Stop(context.Context) Result {
	return Result{
		Provenance: n.describe(), StartMono: n.from, Duration: thread.Monotonic() - n.from,
		NotMeasured: "the experiment names no power source",
	}
}
