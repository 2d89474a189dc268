// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"fmt"

	"github.com/niclane/niclane/bench/part/thread"
)

// A Source is where power is read. It can be measured several times, also at the same time.
type Source interface {
	// Describe says what will be read, as far as the Config tells. It contacts no device. The
	// Provenance in a Result is complete.
	Describe() Provenance
	// Start finds the sensors, takes a first reading and begins the window. If it returns no error,
	// the caller must stop the Meter.
	Start(ctx context.Context) (Meter, error)
}

// A Meter measures a window that has begun.
type Meter interface {
	// Stop ends the window. Errors after Start are in the Result (NotMeasured, Warnings), not
	// returned: the work that was measured is not lost.
	Stop(ctx context.Context) Result
}

// Open checks c, returns every error in it, and reads the credentials that it names. It contacts no
// sensor and opens no connection.
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

// Validate returns every error in c. It reads no file.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

// kind is implemented by each kind of source.
type kind interface {
	describe() Provenance
	// find finds the sensors and makes them ready to be read.
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

// Measure calls during and measures the power meanwhile. If Start fails, Measure returns its error
// and does not call during. Otherwise it returns the error of during, and the Result covers the
// time of the call. To measure several sources at the same time, nest calls of Measure.
func Measure(ctx context.Context, src Source, during func() error) (Result, error) {
	m, err := src.Start(ctx)
	if err != nil {
		return Result{Provenance: src.Describe(), NotMeasured: err.Error()}, err
	}
	stopped := false
	// If during panics, Stop still closes the session on a BMC.
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
