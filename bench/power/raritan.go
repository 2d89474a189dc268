// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// pdu2 is the start of all OIDs of PDU2-MIB, for PX2, PX3 and newer PDUs. A table's OID follows, then
// a column, then a row: {pdu}.{inlet or outlet}.{sensor type}.
const pdu2 = ".1.3.6.1.4.1.13742.6."

type pdu2Table struct{ configuration, measurements string }

var (
	inletTable  = pdu2Table{pdu2 + "3.3.4.1.", pdu2 + "5.2.3.1."}
	outletTable = pdu2Table{pdu2 + "3.5.4.1.", pdu2 + "5.4.3.1."}
)

// Columns of the tables: 6, 7 and 9 of the configuration table, 3 and 4 of the measurements table.
const (
	pdu2Units      = "6." // SensorUnitsEnumeration
	pdu2Digits     = "7." // decimal digits
	pdu2Resolution = "9." // in units of the last decimal digit
	pdu2State      = "3." // SensorStateEnumeration
	pdu2Value      = "4." // Unsigned32
)

// Values of PDU2-MIB's enumerations.
const (
	pdu2ActivePower  = "5"
	pdu2ActiveEnergy = "8"
	pdu2Watt         = 3
	pdu2WattHour     = 5
	pdu2Unavailable  = -1
)

const (
	pdu2Model    = pdu2 + "3.2.1.1.3." // pduModel.{pdu}
	pdu2Firmware = pdu2 + "3.2.3.1.6." // boardFirmwareVersion.{pdu}.mainController.{board}
)

type raritan struct{ snmp }

func (s raritan) describe() Provenance {
	p := s.snmp.describe()
	what, list := "inlets", s.c.Inlets
	if len(s.c.Outlets) > 0 {
		what, list = "outlets", s.c.Outlets
	}
	p.Covers = fmt.Sprintf("what hangs on %s %v of PDU %d, losses of the host's power supplies included", what, list,
		s.c.PDU)
	return p
}

func (s raritan) find(ctx context.Context) (sensorSet, error) {
	a, err := s.connect(ctx)
	if err != nil {
		return sensorSet{}, err
	}
	f := sensorSet{prov: s.describe()}
	p := &pdu{a: a, unavailable: pdu2Unavailable}
	f.dev = p
	table, name, list := inletTable, "inlet", s.c.Inlets
	if len(s.c.Outlets) > 0 {
		table, name, list = outletTable, "outlet", s.c.Outlets
	}
	var energy []gear
	for _, n := range list {
		row := fmt.Sprintf("%d.%d.", s.c.PDU, n)
		g, err := s.sensor(ctx, a, table, row+pdu2ActivePower, fmt.Sprintf("%s %d active power", name, n))
		if err != nil {
			return sensorSet{}, errors.Join(fmt.Errorf("%s %d: %w", name, n, err), a.close())
		}
		f.gears = append(f.gears, g)
		// Cheaper models do not count energy. The sum of energy needs a counter at every inlet or outlet.
		g, err = s.sensor(ctx, a, table, row+pdu2ActiveEnergy, fmt.Sprintf("%s %d active energy", name, n))
		if err != nil {
			f.warnings = append(f.warnings, fmt.Sprintf("no energy counters: %s %d: %v", name, n, err))
			break
		}
		energy = append(energy, g)
	}
	if len(energy) == len(list) {
		f.gears = append(f.gears, energy...)
	}
	for _, g := range f.gears {
		p.oids = append(p.oids, g.Path)
	}
	for _, g := range f.gears {
		p.states = append(p.states, table.measurements+pdu2State+g.Path[len(table.measurements+pdu2Value):])
	}
	f.prov.Device = a.text(ctx, pdu2Model+strconv.Itoa(s.c.PDU))
	f.prov.Firmware = a.text(ctx, pdu2Firmware+strconv.Itoa(s.c.PDU)+".1.1")
	return f, nil
}

// sensor reads the unit and the decimal digits of a sensor. It refuses a unit that does not match
// the sensor's type.
func (s raritan) sensor(ctx context.Context, a *agent, t pdu2Table, row, name string) (gear, error) {
	oids := []string{t.configuration + pdu2Units + row, t.configuration + pdu2Digits + row,
		t.configuration + pdu2Resolution + row, t.measurements + pdu2Value + row}
	vars, err := a.get(ctx, oids)
	if err != nil {
		return gear{}, err
	}
	var v [4]float64
	for i := range v {
		if v[i], err = number(oids[i], vars[i]); err != nil {
			return gear{}, err
		}
	}
	energy := row[len(row)-1:] == pdu2ActiveEnergy
	unit, want, label := 1.0, float64(pdu2Watt), "W"
	if energy {
		unit, want, label = 3600, pdu2WattHour, "Wh"
	}
	if v[0] != want {
		return gear{}, fmt.Errorf("%s: unit %v, want %v (%s)", oids[0], v[0], want, label)
	}
	if v[1] < 0 || v[1] > 9 || v[1] != math.Trunc(v[1]) {
		return gear{}, fmt.Errorf("%s: %v decimal digits, want 0 to 9", oids[1], v[1])
	}
	count := math.Pow10(-int(v[1]))
	g := gear{Sensor: Sensor{
		Name: name, Path: oids[3], Quantity: Power, Unit: label, ResolutionFrom: FromSource,
		UpdateInterval: raritanUpdate, UpdateIntervalFrom: FromDefault, Averages: true,
	}, unit: unit * count}
	if count != 1 {
		g.Unit = fmt.Sprintf("%g %s", count, label)
	}
	resolution := g.unit * max(v[2], 1)
	if energy {
		// A 32-bit counter of Wh does not wrap during a PDU's life. A step back means that a person reset
		// it.
		g.Quantity, g.ResolutionJ, g.Averages = Energy, resolution, false
	} else {
		g.ResolutionW = resolution
	}
	return g, nil
}
