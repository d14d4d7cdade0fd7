"""Text encoders: conversion of texts to embeddings without padding."""
