// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Files are the paths of one side's PEM files: its own certificate and key, and the certificate of
// the authority that has signed the other side's certificate.
type Files struct {
	Certificate, Key, Authority string
}

// config returns the TLS settings that both sides share, and the pool with the authority. It
// requires TLS 1.3 and allows no resumption, so that every connection is verified.
func (f Files) config() (*tls.Config, *x509.CertPool, error) {
	own, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s with key %s: %w", f.Certificate, f.Key, err)
	}
	if st, err := os.Stat(f.Key); err == nil && st.Mode().Perm()&0o077 != 0 {
		return nil, nil, fmt.Errorf("key %s: mode %04o lets others read it, want 0600", f.Key, st.Mode().Perm())
	}
	text, err := os.ReadFile(f.Authority)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("authority %s: no certificate in it", f.Authority)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		SessionTicketsDisabled: true,
	}, pool, nil
}

// server returns the agent's TLS configuration.
func (f Files) server() (*tls.Config, error) {
	c, pool, err := f.config()
	if err != nil {
		return nil, err
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
	return c, nil
}

// Client returns the orchestrator's TLS configuration for Dial.TLS. Open adds the name that the
// agent's certificate must have.
func (f Files) Client() (*tls.Config, error) {
	c, pool, err := f.config()
	if err != nil {
		return nil, err
	}
	c.RootCAs = pool
	return c, nil
}

// names returns the names in a certificate: subject alternative names, never the common name.
func names(c *x509.Certificate) []string { return slices.Clone(c.DNSNames) }

// known returns the first name in a client's certificate that is in allowed. Without such a name, it
// returns an error.
func known(state *tls.ConnectionState, allowed []string) (string, error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return "", errors.New("no certificate")
	}
	have := names(state.PeerCertificates[0])
	for _, name := range have {
		if slices.Contains(allowed, name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("the certificate is of %q, this agent allows %q", have, allowed)
}
