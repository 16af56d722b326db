//! cluster-manager
