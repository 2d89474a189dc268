// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
)

const (
	// redfishUpdate is the update interval that is assumed if no sensor reports one, ns.
	redfishUpdate = int64(10 * time.Second)
	// maxBody and maxHeader limit a response, in bytes. The largest chassis of a real BMC has about 50
	// KiB.
	maxBody   = 1 << 20
	maxHeader = 64 << 10
	// maxRequests limits the requests to find the sensors. So an endless collection ends.
	maxRequests = 256
	// maxCA is the largest size of a file of certificates, in bytes.
	maxCA = 1 << 20
)

type redfish struct {
	c       Config
	secrets secrets
	roots   *x509.CertPool // nil: the system's authorities
}

func openRedfish(c Config) (kind, error) {
	s, err := readSecrets(c.Credentials, []string{user, password}, nil)
	if err != nil {
		return nil, err
	}
	r := redfish{c: c, secrets: s}
	if c.CAFile == "" {
		return r, nil
	}
	f, err := os.Open(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca-file: %w", err)
	}
	defer f.Close()
	pem, err := io.ReadAll(io.LimitReader(f, maxCA))
	if err != nil {
		return nil, fmt.Errorf("ca-file: %w", err)
	}
	if r.roots = x509.NewCertPool(); !r.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca-file %s: no certificate in PEM", c.CAFile)
	}
	return r, nil
}

func (r redfish) describe() Provenance {
	p := Provenance{
		Source: Redfish, Address: r.c.URL, Protocol: "HTTPS, certificate verified",
		Covers: "the chassis as its BMC measures it",
	}
	if r.c.SkipVerify {
		p.Protocol = "HTTPS, certificate not verified"
	}
	return p
}

// guard is an HTTP transport that sends requests to one host only and refuses links to other hosts.
// It limits the number of requests and the size of each response.
type guard struct {
	host string
	next *http.Transport
	left atomic.Int64 // how many requests are left for finding the sensors
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" || req.URL.Host != g.host || req.URL.User != nil {
		return nil, fmt.Errorf("the BMC links to a host other than %s", g.host)
	}
	if g.left.Add(-1) < 0 {
		return nil, fmt.Errorf("more than %d requests to find a power sensor", maxRequests)
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{&boundedReader{resp.Body, maxBody}, resp.Body}
	return resp, nil
}

// CloseIdleConnections is the method that http.Client calls to close idle connections.
func (g *guard) CloseIdleConnections() { g.next.CloseIdleConnections() }

// boundedReader is io.LimitReader, but returns an error at its limit.
type boundedReader struct {
	r io.Reader
	n int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.n < 0 {
		return 0, fmt.Errorf("a response of more than %d bytes", maxBody)
	}
	n, err := b.r.Read(p[:min(len(p), b.n+1)])
	if b.n -= n; b.n < 0 {
		return n, fmt.Errorf("a response of more than %d bytes", maxBody)
	}
	return n, err
}

func (r redfish) client(ctx context.Context) (*gofish.APIClient, *guard, error) {
	u, err := url.Parse(r.c.URL)
	if err != nil {
		return nil, nil, errors.New("url: not a URL")
	}
	g := &guard{host: u.Host, next: &http.Transport{
		// Proxy is not set, because a BMC is on the management network.
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: r.roots,
			InsecureSkipVerify: r.c.SkipVerify},
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        1,
	}}
	g.left.Store(maxRequests)
	cl, err := gofish.ConnectContext(ctx, gofish.ClientConfig{
		Endpoint: "https://" + u.Host, Username: r.secrets[user], Password: r.secrets[password],
		HTTPClient:       &http.Client{Transport: g, Timeout: time.Duration(r.c.Timeout)},
		ReuseConnections: true, NoModifyTransport: true,
	})
	if err != nil {
		return nil, nil, r.clean(err)
	}
	return cl, g, nil
}

// clean removes secrets from an error and shortens a BMC's long messages.
func (r redfish) clean(err error) error {
	err = r.secrets.hide(err)
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return fmt.Errorf("%w: ca-file names the authority of the BMC's certificate", err)
	}
	if text := printable(err.Error()); text != err.Error() {
		return &redactedError{text, err}
	}
	return err
}

func (r redfish) find(ctx context.Context) (sensorSet, error) {
	cl, g, err := r.client(ctx)
	if err != nil {
		return sensorSet{}, err
	}
	dev := &chassisReader{r: r, cl: cl}
	f := sensorSet{dev: dev, prov: r.describe()}
	if r.c.SkipVerify {
		f.warnings = append(f.warnings, "the BMC's certificate was not verified (skip-verify): an attacker on the "+
			"network path could have read the password or forged the watts")
	}
	if err := r.sensors(cl, dev, &f); err != nil {
		return sensorSet{}, errors.Join(r.clean(err), dev.close(ctx))
	}
	g.left.Store(1 << 62)
	return f, nil
}

// sensors finds the power sensors of each chassis.
func (r redfish) sensors(cl *gofish.APIClient, dev *chassisReader, f *sensorSet) error {
	var list []*schemas.Chassis
	for _, id := range r.c.Chassis {
		ch, err := schemas.GetChassis(cl, "/redfish/v1/Chassis/"+id)
		if err != nil {
			return fmt.Errorf("chassis %s: %w", id, err)
		}
		list = append(list, ch)
	}
	if list == nil {
		var err error
		if list, err = cl.Service.Chassis(); err != nil {
			return fmt.Errorf("list chassis: %w", err)
		}
		// gofish fetches the chassis in parallel, so their order varies.
		slices.SortFunc(list, func(a, b *schemas.Chassis) int { return cmp.Compare(a.ID, b.ID) })
	}
	var with, without []string
	var energy []gear
	var energyReaders []reader
	for _, ch := range list {
		p, e, err := r.chassis(cl, ch)
		if err != nil {
			return fmt.Errorf("chassis %s: %w", printable(ch.ID), err)
		}
		if p == nil {
			without = append(without, printable(ch.ID))
			continue
		}
		with = append(with, printable(ch.ID))
		f.gears, dev.readers = append(f.gears, p.gear), append(dev.readers, p.reader)
		f.prov.Device = strings.TrimSpace(printable(ch.Manufacturer + " " + ch.Model))
		if e != nil {
			energy, energyReaders = append(energy, e.gear), append(energyReaders, e.reader)
		}
		if m, err := ch.ManagedBy(); err == nil && len(m) > 0 && f.prov.Firmware == "" {
			f.prov.Firmware = printable(m[0].FirmwareVersion)
		}
	}
	switch {
	case len(r.c.Chassis) > 0 && len(without) > 0:
		return fmt.Errorf("chassis %s: no power reading", strings.Join(without, ", "))
	case len(with) == 0:
		return fmt.Errorf("no chassis reports power (asked %s)", strings.Join(without, ", "))
	case len(r.c.Chassis) == 0 && len(with) > 1:
		return fmt.Errorf("chassis %s all report power, and one may contain another: name those to add up (chassis)",
			strings.Join(with, ", "))
	}
	f.prov.Covers = "chassis " + strings.Join(with, ", ") + " as the BMC measures it"
	if len(energy) == len(with) {
		f.gears, dev.readers = append(f.gears, energy...), append(dev.readers, energyReaders...)
	}
	return nil
}

// reader reads one value from the BMC. The client has the context of the request.
type reader func(cl *gofish.APIClient) (*float64, error)

type property struct {
	gear
	reader
}

// chassis returns readers for a chassis's power and energy. A reader is nil if the chassis does not
// report the quantity.
func (r redfish) chassis(cl *gofish.APIClient, ch *schemas.Chassis) (power, energy *property, err error) {
	env, err := ch.EnvironmentMetrics()
	if err != nil {
		return nil, nil, err
	}
	if env != nil && env.PowerWatts.Reading != nil {
		uri := env.ODataID
		read := func(get func(*schemas.EnvironmentMetrics) *float64) reader {
			return func(cl *gofish.APIClient) (*float64, error) {
				m, err := schemas.GetEnvironmentMetrics(cl, uri)
				if err != nil {
					return nil, err
				}
				return get(m), nil
			}
		}
		power = &property{r.gear(uri+"#PowerWatts", Power, 1),
			read(func(m *schemas.EnvironmentMetrics) *float64 { return m.PowerWatts.Reading })}
		if err := sensorDetails(cl, env.PowerWatts.DataSourceURI, &power.gear); err != nil {
			return nil, nil, err
		}
		switch {
		case env.EnergyJoules.Reading != nil:
			energy = &property{r.gear(uri+"#EnergyJoules", Energy, 1),
				read(func(m *schemas.EnvironmentMetrics) *float64 { return m.EnergyJoules.Reading })}
		case env.EnergykWh.Reading != nil:
			energy = &property{r.gear(uri+"#EnergykWh", Energy, 3.6e6),
				read(func(m *schemas.EnvironmentMetrics) *float64 { return m.EnergykWh.Reading })}
		}
		return power, energy, nil
	}
	old, err := ch.Power()
	if err != nil || old == nil || len(old.PowerControl) == 0 || old.PowerControl[0].PowerConsumedWatts == nil {
		return nil, nil, err
	}
	// The first member of PowerControl is the chassis; the others are parts of it. PowerMetrics is not
	// used, because its averages are over minutes.
	uri := old.ODataID
	return &property{r.gear(uri+"#PowerControl/0/PowerConsumedWatts", Power, 1),
		func(cl *gofish.APIClient) (*float64, error) {
			p, err := schemas.GetPower(cl, uri)
			if err != nil || len(p.PowerControl) == 0 || p.PowerControl[0].PowerConsumedWatts == nil {
				return nil, err
			}
			v := float64(*p.PowerControl[0].PowerConsumedWatts)
			return &v, nil
		}}, nil, nil
}

func (r redfish) gear(path, quantity string, unit float64) gear {
	path = printable(path)
	g := gear{Sensor: Sensor{
		Name: path[strings.LastIndex(path, "/")+1:], Path: path, Quantity: quantity, Unit: "W",
		ResolutionW: 1, ResolutionFrom: FromDefault,
		UpdateInterval: redfishUpdate, UpdateIntervalFrom: FromDefault,
	}, unit: unit}
	if i := strings.LastIndex(path, "#"); i >= 0 {
		g.Name = path[i+1:]
	}
	if quantity == Energy {
		// The counter has whole J or whole Wh, because kWh have at most three decimals.
		g.ResolutionW, g.ResolutionJ, g.Unit = 0, max(1, unit/1000), "J"
		if unit != 1 {
			g.Unit = "kWh"
		}
	}
	return g
}

// sensorDetails reads the Sensor resource to which an excerpt points.
func sensorDetails(cl *gofish.APIClient, uri string, g *gear) error {
	if uri == "" {
		return nil
	}
	s, err := schemas.GetSensor(cl, uri)
	if err != nil {
		return fmt.Errorf("sensor %s: %w", printable(uri), err)
	}
	if d, ok := duration(s.SensingInterval); ok {
		g.UpdateInterval, g.UpdateIntervalFrom = d, FromSource
	}
	return nil
}

var iso8601 = regexp.MustCompile(`^P(?:(\d{1,3})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,5})M)?(?:(\d{1,7}(?:\.\d{1,9})?)S)?)?$`)

// duration parses a Redfish duration (ISO 8601, days to seconds) and returns ns. It returns false
// for "" and for any other text.
func duration(text string) (int64, bool) {
	m := iso8601.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	total := 0.0
	for i, unit := range []float64{86400, 3600, 60, 1} {
		if m[i+1] == "" {
			continue
		}
		v, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			return 0, false
		}
		total += v * unit
	}
	ns := int64(total * 1e9)
	return ns, ns > 0
}

// chassisReader is a session on a BMC with the readers of its chassis.
type chassisReader struct {
	r       redfish
	cl      *gofish.APIClient
	readers []reader
}

func (c *chassisReader) read(ctx context.Context) ([]float64, error) {
	cl := c.cl.WithContext(ctx)
	out := make([]float64, len(c.readers))
	for i, read := range c.readers {
		v, err := read(cl)
		if err != nil {
			return nil, c.r.clean(err)
		}
		if v == nil {
			return nil, errors.New("the BMC has no reading at the moment")
		}
		out[i] = *v
	}
	return out, nil
}

// close logs out of the BMC. The HTTP client's timeout limits the time.
func (c *chassisReader) close(ctx context.Context) error {
	c.cl.WithContext(ctx).Logout()
	return nil
}
