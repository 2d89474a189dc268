// SPDX-License-Identifier: Apache-2.0

// Package dra offers a node's lanes by Dynamic Resource Allocation (resource.k8s.io/v1,
// Kubernetes 1.34 and newer), as the driver niclane.dev. It publishes the classes that are offered
// as claims in ResourceSlices. When kubelet prepares a claim, the driver holds the units that the
// scheduler has allocated to the claim. It writes into the ResourceClaim's status which lane the
// pod got.
//
// An exclusive class has a device for each queue set. A shared class is one device for many claims.
// Each claim takes one or more places of the device's capacity "pods". The driver does not
// publish an unhealthy unit, but pods that have it keep it.
//
// The package stores nothing itself: the inventory.Inventory keeps on disk which claim holds which
// units. The driver refuses unknown parameters, and claims for units that the node does not have.
package dra

// DriverName is the driver's name in DeviceClasses and ResourceSlices, and the domain of the
// devices' attributes.
const DriverName = "niclane.dev"
