// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Default and limit of MakeCertificates, and the name of a file that it writes.
const (
	// DefaultClient is the default name of the orchestrator in its certificate.
	DefaultClient = "niclane-bench"
	// AuthorityFile is the file with the authority's certificate.
	AuthorityFile = "ca.pem"
	// MaxValidity is the longest time for which certificates can be valid.
	MaxValidity = 366 * 24 * time.Hour
)

var hostName = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z.-]{0,251}[0-9A-Za-z])?$`)

// MakeCertificates makes a new certificate authority, and a certificate with a key for each host
// (a name or an address) and for the client. It writes them to dir, which it creates, as NAME.pem
// and NAME.key. Only the owner can read the files. It does not keep the authority's key, so that
// nothing else can be signed with it. It never overwrites a file. It returns the files' paths.
func MakeCertificates(dir string, hosts []string, client string, valid time.Duration, now time.Time) ([]string, error) {
	if valid < time.Minute || valid > MaxValidity {
		return nil, fmt.Errorf("certificates valid for %v: want 1m to %v", valid, MaxValidity)
	}
	if len(hosts) == 0 {
		return nil, errors.New("no hosts: want the names or addresses by which the agents are reached")
	}
	seen := map[string]bool{"ca": true}
	for _, name := range append([]string{client}, hosts...) {
		if net.ParseIP(name) == nil && !hostName.MatchString(name) {
			return nil, fmt.Errorf("%.60q: want the name or address of a host", name)
		}
		if seen[name] {
			return nil, fmt.Errorf("%s: found twice, or it is the authority's or the orchestrator's name", name)
		}
		seen[name] = true
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for name := range seen {
		for _, suffix := range []string{".pem", ".key"} {
			path := filepath.Join(dir, name+suffix)
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				if err == nil {
					err = fs.ErrExist
				}
				return nil, fmt.Errorf("%s: %w; nothing was written", path, err)
			}
		}
	}
	from, to := now.Add(-time.Hour), now.Add(valid) // valid from an hour ago, because clocks differ
	ca, caKey, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "niclane bench certs"}, NotBefore: from, NotAfter: to, IsCA: true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	files := []struct {
		name, kind string
		der        []byte
	}{{AuthorityFile, "CERTIFICATE", ca.Raw}}
	for _, name := range append([]string{client}, hosts...) {
		c := &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = []net.IP{ip}
		} else {
			c.DNSNames = []string{name}
		}
		if name == client { // an agent must not be a client of another agent
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}
		made, key, err := sign(c, ca, caKey)
		if err != nil {
			return nil, err
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		files = append(files, struct {
			name, kind string
			der        []byte
		}{name + ".pem", "CERTIFICATE", made.Raw}, struct {
			name, kind string
			der        []byte
		}{name + ".key", "PRIVATE KEY", secret})
	}
	var written []string
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := writeNew(path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})); err != nil {
			for _, w := range written {
				err = errors.Join(err, os.Remove(w))
			}
			return nil, err
		}
		written = append(written, path)
	}
	return written, nil
}

// writeNew writes a file that must not exist yet.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// sign makes a certificate with a new key. Without a parent, the certificate is self-signed.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey,
	error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, err
	}
	c, err := x509.ParseCertificate(der)
	return c, key, err
}
