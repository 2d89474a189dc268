// SPDX-License-Identifier: Apache-2.0

// Package extack makes netlink errors readable: the errno and the kernel's own
// words, nothing of the library's. It decides nothing about what they mean.
package extack

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
)

// Error returns err without the netlink library's wording: the errno, and the
// kernel's extended acknowledgement if it sent one. errors.Is against errnos
// keeps working. An error that is not of netlink is returned as it is.
func Error(err error) error {
	var op *netlink.OpError
	if !errors.As(err, &op) || op.Err == nil {
		return err
	}
	if op.Message == "" {
		return op.Err
	}
	return fmt.Errorf("%w: %s", op.Err, op.Message)
}
