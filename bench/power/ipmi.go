// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	ipmiclient "github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/dcmi"
	"github.com/bougou/go-ipmi/pkg/types"
)

// dcmiUpdate is the assumed update interval, because DCMI does not report one. BMCs have 1 s to 10
// s.
const dcmiUpdate = int64(10 * time.Second)

// insufficientPrivilege is an IPMI completion code (IPMI 2.0, table 5-2).
const insufficientPrivilege = 0xd4

// connectExchanges is the number of exchanges that opening an RMCP+ session can take, retries
// included.
const connectExchanges = 16

var privileges = map[string]types.PrivilegeLevel{
	"user": types.PrivilegeLevelUser, "operator": types.PrivilegeLevelOperator,
	"administrator": types.PrivilegeLevelAdministrator,
}

type ipmi struct {
	c       Config
	secrets secrets
}

func openIPMI(c Config) (kind, error) {
	if c.Device != "" {
		return ipmi{c: c}, nil
	}
	s, err := readSecrets(c.Credentials, []string{user, password}, nil)
	if err != nil {
		return nil, err
	}
	// Limits of RMCP+: IPMI 2.0, 13.20 and 22.30.
	if len(s[user]) > 16 || len(s[password]) > 20 {
		return nil, fmt.Errorf("%s: IPMI users have at most 16 bytes, passwords 20", c.Credentials)
	}
	return ipmi{c, s}, nil
}

func (s ipmi) describe() Provenance {
	p := Provenance{
		Source: IPMI, Address: s.c.Address,
		Covers: "the whole host, as its BMC measures it",
	}
	if s.c.Device != "" {
		p.Address, p.Protocol = s.c.Device, "system interface"
	} else {
		p.Protocol = fmt.Sprintf("RMCP+, cipher suite %d", s.c.CipherSuite)
	}
	return p
}

// client returns a connected client. By default it requests user privilege, because with operator
// privilege a caller could switch the host off.
func (s ipmi) client(ctx context.Context) (*ipmiclient.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, connectExchanges*time.Duration(s.c.Timeout))
	defer cancel()
	timeout := time.Duration(s.c.Timeout)
	if s.c.Device != "" {
		// This error gives the reason. go-ipmi's own error does not.
		f, err := os.OpenFile(s.c.Device, os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("%w (the ipmi_devintf and ipmi_si modules make it)", err)
		}
		f.Close()
		n, err := strconv.Atoi(ipmiDevice.FindStringSubmatch(s.c.Device)[1])
		if err != nil {
			return nil, err
		}
		cl, err := ipmiclient.NewOpenClient()
		if err != nil {
			return nil, err
		}
		return cl.WithTimeout(timeout), cl.ConnectOpen(ctx, int32(n))
	}
	host, port, err := net.SplitHostPort(s.c.Address)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	// go-ipmi joins host and port without brackets, so an IPv6 address gets them here.
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		host = "[" + host + "]"
	}
	cl, err := ipmiclient.NewClient(host, n, s.secrets[user], s.secrets[password])
	if err != nil {
		return nil, s.secrets.hide(err)
	}
	cl = cl.WithTimeout(timeout).WithRetry(1).
		WithCipherSuiteID(types.CipherSuiteID(s.c.CipherSuite)).
		WithMaxPrivilegeLevel(privileges[s.c.Privilege]).
		WithUDPProxy(newVerifier(s.secrets[user], s.secrets[password], s.c.CipherSuite))
	if err := s.guard(func() error { return cl.Connect(ctx) }); err != nil {
		s.close(cl)
		return nil, err
	}
	return cl, nil
}

// guard runs one exchange with the BMC. It removes secrets from the error. It also recovers from
// panics of go-ipmi, which unexpected answers can cause.
func (s ipmi) guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.secrets.hide(fmt.Errorf("the BMC's response: %v", p))
		}
	}()
	err = s.secrets.hide(do())
	// Errors of go-ipmi have several lines, but each item of a list of errors must be one line.
	if err != nil && strings.Contains(err.Error(), "\n") {
		err = &redactedError{strings.Join(strings.Fields(err.Error()), " "), err}
	}
	return err
}

// close closes the session on the BMC, because a BMC allows only a few. It waits at most the
// timeout. A BMC closes an unused session by itself after 60 s.
func (s ipmi) close(cl *ipmiclient.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.c.Timeout))
	defer cancel()
	return s.guard(func() error { return cl.Close(ctx) })
}

func (s ipmi) find(ctx context.Context) (sensorSet, error) {
	cl, err := s.client(ctx)
	if err != nil {
		return sensorSet{}, err
	}
	f := sensorSet{dev: &ipmiSession{s, cl}, prov: s.describe()}
	if err := s.guard(func() error {
		id, err := cl.GetDeviceID(ctx)
		if err != nil {
			return err
		}
		f.prov.Device = fmt.Sprintf("BMC, manufacturer %d, product %d", id.ManufacturerID, id.ProductID)
		f.prov.Firmware = fmt.Sprintf("%d.%02d", id.MajorFirmwareRevision, id.MinorFirmwareRevision)
		return nil
	}); err != nil {
		f.warnings = append(f.warnings, fmt.Sprintf("the BMC does not name itself: %v", err))
	}
	f.gears = []gear{{Sensor: Sensor{
		Name: "system power", Path: "DCMI Get Power Reading, current power", Quantity: Power, Unit: "W",
		ResolutionW: 1, ResolutionFrom: FromSource,
		UpdateInterval: dcmiUpdate, UpdateIntervalFrom: FromDefault,
	}, unit: 1}}
	return f, nil
}

// ipmiSession is a connected client that reads power.
type ipmiSession struct {
	s  ipmi
	cl *ipmiclient.Client
}

func (b *ipmiSession) read(ctx context.Context) ([]float64, error) {
	var r *dcmi.GetDCMIPowerReadingResponse
	err := b.s.guard(func() (err error) {
		r, err = b.cl.GetDCMIPowerReading(ctx)
		return err
	})
	switch {
	case err != nil:
		if r, code := types.IsResponseError(err); code && uint8(r.CompletionCode()) == insufficientPrivilege {
			err = fmt.Errorf("DCMI Get Power Reading: the privilege %q is too low for this BMC: %w", b.s.c.Privilege,
				err)
		} else if code {
			err = fmt.Errorf("DCMI Get Power Reading (not every BMC has it): %w", err)
		}
		return nil, err
	case !r.PowerMeasurementActive:
		return nil, errors.New("the BMC says that it does not measure power at the moment")
	case r.CurrentPower == 0:
		return nil, errors.New("the BMC reports 0 W for a host that runs")
	}
	return []float64{float64(r.CurrentPower)}, nil
}

func (b *ipmiSession) close(context.Context) error { return b.s.close(b.cl) }
