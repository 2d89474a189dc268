// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"
)

// tlsStat is from Linux 6.12.
const tlsStat = `TlsCurrTxSw                     	1
TlsCurrRxSw                     	0
TlsCurrTxDevice                 	0
TlsCurrRxDevice                 	0
TlsTxSw                         	8
TlsRxSw                         	3
TlsTxDevice                     	5
TlsRxDevice                     	0
TlsDecryptError                 	0
TlsRxDeviceResync               	0
TlsDecryptRetry                 	0
TlsRxNoPadViolation             	0
`

func TestTLS(t *testing.T) {
	now, err := parseTLS(strings.NewReader(tlsStat))
	if err != nil || *now != (KernelTLS{Software: 8, Device: 5}) {
		t.Fatalf("%+v, %v", now, err)
	}
	if d := now.since(&KernelTLS{Software: 2, Device: 5}); *d != (KernelTLS{Software: 6}) {
		t.Errorf("since: %+v", d)
	}
	if d := now.since(nil); *d != *now {
		t.Errorf("since the module came: %+v", d)
	}
	if d := (*KernelTLS)(nil).since(nil); d != nil {
		t.Errorf("without the module: %+v", d)
	}
	for _, text := range []string{"", "TlsTxSw 8\n", "TlsTxSw 8\nTlsTxDevice -1\n"} {
		if _, err := parseTLS(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
