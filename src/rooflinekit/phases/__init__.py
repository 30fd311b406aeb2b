"""What one request feels: a model on a device as a Deployment, and the estimates it gives."""
