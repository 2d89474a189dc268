// SPDX-License-Identifier: Apache-2.0

package cluster

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
	"time"
)

// An authority is the certificate authority of one cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority() (*authority, error) {
	a := &authority{certificate: &x509.Certificate{
		Subject: pkix.Name{CommonName: "niclane test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.pem, err = a.sign(a.certificate, &a.key.PublicKey); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.pem)
	a.certificate, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// sign signs the certificate c for a key, and returns it in PEM. It is valid for a day: churn can
// take hours.
func (a *authority) sign(c *x509.Certificate, key *ecdsa.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, err
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = serial, time.Now().Add(-time.Minute), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, a.certificate, key, a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// A credential is a certificate and its key, in PEM.
type credential struct{ certificate, key []byte }

// issue returns a credential for a Kubernetes user in the given groups. The same certificate serves
// a server with the given addresses and names.
func (a *authority) issue(user string, groups []string, addresses ...string) (*credential, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, address := range addresses {
		if ip := net.ParseIP(address); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, address)
		}
	}
	signed, err := a.sign(c, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	// The key has the form (EC PRIVATE KEY) in which the API server reads service accounts' keys.
	der, err := x509.MarshalECPrivateKey(key)
	return &credential{signed, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}, err
}

// write writes the credential to dir as NAME.crt and NAME.key.
func (c *credential) write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), c.certificate, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), c.key, 0o600)
}

// kubeconfig returns the text of a kubeconfig file for a user. It contains the certificates and the
// key.
func (a *authority) kubeconfig(user *credential) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: user, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: test, context: {cluster: test, user: user}}]
current-context: test
`, server, base64(a.pem), base64(user.certificate), base64(user.key))
}
