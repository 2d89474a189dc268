// SPDX-License-Identifier: Apache-2.0

// Package dra offers a node's lanes by Dynamic Resource Allocation (resource.k8s.io/v1,
// Kubernetes 1.34 and newer), as the driver niclane.dev. It publishes the classes that are
// offered as claims in ResourceSlices. When kubelet prepares a claim, it holds the units that
// the scheduler has allocated. It writes into each ResourceClaim's status which lane its pod
// got.
//
// An exclusive class has a device for each queue set. A shared class is one device, from
// which many claims are allocated; each takes one or more places of its capacity "members".
// An unhealthy unit is not published; pods that have it keep it.
//
// The package stores nothing itself: holds are in the inventory.Inventory, on disk. It
// refuses unknown parameters, and claims for units that the node does not have.
package dra

// DriverName is the driver's name in DeviceClasses and ResourceSlices, and the domain of the
// devices' attributes.
const DriverName = "niclane.dev"
