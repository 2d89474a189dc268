// SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Names of the files of the certificate that a run makes for its server.
const (
	certificateFile = "certificate.pem"
	keyFile         = "key.pem"
	bundleFile      = "bundle.pem" // certificate and key
)

// makeCertificate writes a certificate for addresses, and its key, into dir. It is self-signed and
// valid for as long as the run may take.
func makeCertificate(dir string, addresses []string, valid time.Duration) error {
	var ips []net.IP
	for _, a := range addresses {
		ip := net.ParseIP(a)
		if ip == nil {
			return fmt.Errorf("certificate for %q: want an address", a)
		}
		ips = append(ips, ip)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "niclane bench run"},
		// One minute more at each end: the clock may be set during the run.
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(valid + time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for _, f := range []struct {
		name string
		text []byte
		mode os.FileMode
	}{{certificateFile, certificate, 0o644}, {keyFile, private, 0o600},
		{bundleFile, slices.Concat(private, certificate), 0o600}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}
